//! Reads the metadata and the tensor list of a GGUF file, with `halfbyte-gguf` alone:
//! `cargo run --release -p halfbyte-examples --example inspect_file -- M.gguf`.

use halfbyte_gguf::{Dims, Gguf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gguf = Gguf::open(std::env::args().nth(1).ok_or("expected the path of a GGUF file")?)?;
    println!("architecture {}", gguf.metadata().str("general.architecture")?);
    for tensor in gguf.tensors() {
        println!("{} {} {}", tensor.name, tensor.ty.name(), Dims(&tensor.dims));
    }
    Ok(())
}
