//! Imatrix files of both formats: the bytes of the input are the file.

use std::num::NonZeroU32;
use std::path::PathBuf;

use halfbyte_gguf::imatrix::{Format, Imatrix};

use crate::Seeds;

/// A file that opens has sums that are numbers, and what is written of it can be read: as GGUF, to the byte.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let imatrix = match Imatrix::from_bytes(data.to_vec()) {
        Ok(imatrix) => imatrix,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for (name, entry) in imatrix.iter() {
        assert!(entry.sums().iter().all(|sum| sum.is_finite() && *sum >= 0.0));
        assert!(entry.sums().len().is_multiple_of(entry.counts().len()));
        for len in [entry.sums().len(), entry.sums().len() / entry.counts().len(), 7] {
            if let Ok(Some(importance)) = imatrix.importance(name, len) {
                assert!(importance.iter().all(|v| v.is_finite() && *v >= 0.0));
            }
        }
    }
    let mut twice = imatrix.clone();
    if twice.merge(&imatrix).is_ok() {
        assert_eq!(twice.iter().len(), imatrix.iter().len());
    }
    if let Ok(bytes) = imatrix.write(Vec::new(), Format::Gguf) {
        // Sums are rounded once.
        let again = Imatrix::from_bytes(bytes.clone()).unwrap();
        assert!(again.write(Vec::new(), Format::Gguf).unwrap() == bytes);
    }
    if let Ok(bytes) = imatrix.write(Vec::new(), Format::Dat) {
        let names = |imatrix: &Imatrix| imatrix.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&Imatrix::from_bytes(bytes).unwrap()), names(&imatrix));
    }
}

/// Files of other writers, and ours.
pub fn seeds() -> Seeds {
    let goldens = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens");
    let golden = |name: &str| std::fs::read(goldens.join(name)).unwrap();
    let mut seeds = vec![golden("imatrix.gguf"), golden("imatrix.dat")];
    let mut imatrix = Imatrix::new(NonZeroU32::MIN);
    imatrix.add("w", &[0.5, 1.0, -0.5, -1.0], 2).unwrap();
    imatrix.add_chunks(2).unwrap();
    imatrix.add_dataset("a.txt");
    seeds.extend([Format::Gguf, Format::Dat].map(|format| imatrix.write(Vec::new(), format).unwrap()));
    seeds
}
