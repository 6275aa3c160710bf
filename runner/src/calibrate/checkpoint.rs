//! A file of finished tensors, from which a stopped calibration continues.
//!
//! ```text
//! "hbcal 1\n"  32 bytes: the fingerprint of the run
//! record:      u32 name length, u64 data length, both little-endian; name, data, 32 bytes: SHA-256 of all before
//! ...
//! ```
//!
//! A record that is cut short or damaged ends the file: it and all records after it are dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Error;
use crate::requantize::Ready;

const MAGIC: &[u8; 8] = b"hbcal 1\n";

/// A hash of everything that a checkpoint depends on.
pub type Fingerprint = [u8; 32];

/// A file of finished tensors.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    file: File,
    /// The name, the position and the length of each tensor.
    records: Vec<(String, u64, usize)>,
}

/// The longest name of a tensor in bytes, as the writer limits it.
const MAX_NAME: u32 = 1 << 16;

impl Checkpoint {
    /// Opens the checkpoint at `path` with the tensors it has, or makes an empty one.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the file is there and of another run or no checkpoint at all, [`Error::Io`].
    pub fn open(path: &Path, fingerprint: Fingerprint) -> Result<Self, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut this = Self { path: path.to_owned(), file, records: Vec::new() };
        if length == 0 {
            let mut head = MAGIC.to_vec();
            head.extend(fingerprint);
            this.file.write_all(&head).map_err(io)?;
            return Ok(this);
        }
        let mut reader = BufReader::new(&this.file);
        let mut head = [0; 40];
        let is_ours = match reader.read_exact(&mut head) {
            Ok(()) => head[..8] == *MAGIC && head[8..] == fingerprint,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(e) => return Err(io(e)),
        };
        if !is_ours {
            return Err(Error::Checkpoint { path: path.to_owned() });
        }
        let mut at = head.len() as u64;
        while let Some((name, data, end)) = read_record(&mut reader, at, length).map_err(io)? {
            this.records.push((name, data.0, data.1));
            at = end;
        }
        drop(reader);
        this.file.set_len(at).map_err(io)?;
        this.file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok(this)
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether the tensor called `name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.records.iter().any(|(n, ..)| n == name)
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`Error::Io`]; the next [`open`](Self::open) then drops what was written of the tensor.
    pub fn add(&mut self, name: &str, data: &[u8]) -> Result<(), Error> {
        let io = |source| Error::Io { path: self.path.clone(), source };
        let start = self.file.seek(SeekFrom::End(0)).map_err(io)?;
        let mut head = (name.len() as u32).to_le_bytes().to_vec();
        head.extend((data.len() as u64).to_le_bytes());
        head.extend(name.as_bytes());
        let digest = Sha256::new().chain_update(&head).chain_update(data).finalize();
        for part in [&head[..], data, &digest[..]] {
            self.file.write_all(part).map_err(io)?;
        }
        self.records.push((name.to_owned(), start + head.len() as u64, data.len()));
        Ok(())
    }

    /// Deletes the file, when its tensors are in the new model.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(self) -> Result<(), Error> {
        let Self { path, file, .. } = self;
        drop(file);
        std::fs::remove_file(&path).map_err(|source| Error::Io { path, source })
    }
}

impl Ready for Checkpoint {
    fn tensor(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(&(_, at, length)) = self.records.iter().find(|(n, ..)| n == name) else { return Ok(None) };
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))?;
        let mut data = vec![0; length];
        file.read_exact(&mut data)?;
        Ok(Some(data))
    }
}

/// A record's name, place of data and end; `None` if there is no whole one. `at` is where the reader stands.
#[allow(clippy::type_complexity, reason = "said once, used once")]
fn read_record(
    reader: &mut impl Read,
    at: u64,
    file_length: u64,
) -> io::Result<Option<(String, (u64, usize), u64)>> {
    let mut head = [0; 12];
    if file_length - at < head.len() as u64 {
        return Ok(None);
    }
    reader.read_exact(&mut head)?;
    let (name_length, data_length) = head.split_at(4);
    let name_length = u32::from_le_bytes(name_length.try_into().unwrap_or_default());
    let data_length = u64::from_le_bytes(data_length.try_into().unwrap_or_default());
    let left = file_length - at - head.len() as u64;
    let wanted = u64::from(name_length).checked_add(data_length).and_then(|n| n.checked_add(32));
    let (Some(wanted), Ok(length)) = (wanted, usize::try_from(data_length)) else { return Ok(None) };
    if name_length > MAX_NAME || wanted > left {
        return Ok(None);
    }
    let mut name = vec![0; name_length as usize];
    reader.read_exact(&mut name)?;
    let mut digest = Sha256::new().chain_update(head).chain_update(&name);
    let mut taken = reader.take(data_length);
    let mut buffer = [0; 1 << 16];
    loop {
        match taken.read(&mut buffer)? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    let mut expected = [0; 32];
    taken.into_inner().read_exact(&mut expected)?;
    let Ok(name) = String::from_utf8(name) else { return Ok(None) };
    if digest.finalize()[..] != expected {
        return Ok(None);
    }
    let data = at + head.len() as u64 + u64::from(name_length);
    Ok(Some((name, (data, length), data + data_length + 32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(checkpoint: &Checkpoint) -> Vec<&str> {
        checkpoint.records.iter().map(|(n, ..)| n.as_str()).collect()
    }

    #[test]
    fn what_was_added_is_there_after_opening_again_and_torn_records_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let mut checkpoint = Checkpoint::open(&path, [7; 32]).unwrap();
        assert!(checkpoint.is_empty());
        checkpoint.add("a", &[1, 2, 3]).unwrap();
        checkpoint.add("bb", &vec![9; 200_000]).unwrap();
        assert_eq!(checkpoint.tensor("a").unwrap().unwrap(), [1, 2, 3]);
        checkpoint.add("c", &[]).unwrap();
        drop(checkpoint);
        let whole = std::fs::read(&path).unwrap();

        let checkpoint = Checkpoint::open(&path, [7; 32]).unwrap();
        assert_eq!(names(&checkpoint), ["a", "bb", "c"]);
        assert_eq!(checkpoint.tensor("bb").unwrap().unwrap(), vec![9; 200_000]);
        assert!(checkpoint.tensor("c").unwrap().unwrap().is_empty());
        assert!(checkpoint.tensor("d").unwrap().is_none());
        drop(checkpoint);

        // Cut anywhere: whole records stay, and new ones go where the torn one was.
        for cut in [whole.len() - 1, whole.len() - 46, whole.len() - 60, 1000, 100, 87, 86, 45, 40] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut checkpoint = Checkpoint::open(&path, [7; 32]).unwrap();
            let kept = names(&checkpoint).len();
            assert!(kept < 3 && ["a", "bb"][..kept] == names(&checkpoint), "{cut}");
            checkpoint.add("new", &[5]).unwrap();
            drop(checkpoint);
            let checkpoint = Checkpoint::open(&path, [7; 32]).unwrap();
            assert_eq!(checkpoint.len(), kept + 1, "{cut}");
            assert_eq!(checkpoint.tensor("new").unwrap().unwrap(), [5]);
        }

        // One byte wrong in the first record's data.
        let mut damaged = whole.clone();
        damaged[40 + 12 + 1] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(Checkpoint::open(&path, [7; 32]).unwrap().is_empty());
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        drop(Checkpoint::open(&path, [1; 32]).unwrap());
        for (contents, fingerprint) in
            [(std::fs::read(&path).unwrap(), [2; 32]), (b"a letter to a friend".to_vec(), [1; 32])]
        {
            std::fs::write(&path, &contents).unwrap();
            let error = Checkpoint::open(&path, fingerprint).unwrap_err();
            assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), contents);
        }
        Checkpoint::open(&path.join("y"), [1; 32]).unwrap_err();
    }
}
