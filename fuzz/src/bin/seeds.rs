//! Writes the inputs to begin with: `seeds FOLDER`, into a folder for each target.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("expected a folder to write to"));
    };
    for (target, seeds) in halfbyte_fuzz::all_seeds() {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (i, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{i:02}")), seed)?;
        }
    }
    Ok(())
}
