//! `model.safetensors.index.json`, which says which file has which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Error;
use super::files::Entry;
use super::json::Object;
use super::limits::MAX_INDEX_BYTES;
use halfbyte_gguf::quote;

pub(crate) const NAME: &str = "model.safetensors.index.json";

/// The file of each tensor.
#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
    file_of: BTreeMap<String, String>,
}

/// The index in `directory`, or `None` if there is none.
///
/// # Errors
/// The file is not an index, or names files outside the directory.
pub(super) fn read(directory: &Path) -> Result<Option<Index>, Error> {
    Object::read(&directory.join(NAME), MAX_INDEX_BYTES)?.map(Index::new).transpose()
}

impl Index {
    pub(super) fn new(object: Object) -> Result<Self, Error> {
        let map = object.opt_object("weight_map")?.ok_or_else(|| object.wrong("weight_map", "an object"))?;
        let mut file_of = BTreeMap::new();
        for (tensor, file) in map.iter() {
            let file = file.as_str().ok_or_else(|| map.wrong(tensor, "the name of a file"))?;
            if !is_name(file) {
                let (path, tensor) = (object.path().to_owned(), quote(tensor));
                return Err(Error::IndexPath { path, tensor, got: quote(file) });
            }
            file_of.insert(tensor.clone(), file.to_owned());
        }
        if file_of.is_empty() {
            return Err(object.wrong("weight_map", "at least one tensor"));
        }
        Ok(Self { path: object.path().to_owned(), file_of })
    }

    /// The names of all files, each once.
    pub(super) fn files(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.file_of.values().collect();
        names.into_iter().cloned().collect()
    }

    /// Checks that each tensor is in the file that the index names.
    pub(super) fn check(&self, names: &[String], tensors: &BTreeMap<String, Entry>) -> Result<(), Error> {
        for (tensor, file) in &self.file_of {
            let found = tensors.get(tensor).map(|entry| &names[entry.file]);
            if found != Some(file) {
                let there = found.map_or_else(String::new, |found| format!(" but in {found}"));
                let problem = format!("not in {file}{there}, where {} says that it is", self.path.display());
                return Err(Error::Placement { tensor: quote(tensor), problem });
            }
        }
        Ok(())
    }
}

/// Whether `file` is a plain name, which does not leave the directory.
pub(crate) fn is_name(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == file)
        && !file.contains(['/', '\\', ':', '\0'])
}
