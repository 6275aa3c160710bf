//! Compiles the contenders in C where what they need is there; elsewhere the comparison goes without them.

use std::path::PathBuf;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(openmp, ggml)");
    openmp();
    ggml();
}

/// Needs a C compiler with OpenMP.
fn openmp() {
    println!("cargo::rerun-if-changed=src/openmp.c");
    let compiled =
        cc::Build::new().file("src/openmp.c").flag("-fopenmp").opt_level(3).try_compile("contender_openmp");
    match compiled {
        Ok(()) => {
            println!("cargo::rustc-link-lib=gomp");
            println!("cargo::rustc-cfg=openmp");
        }
        Err(error) => println!("cargo::warning=no OpenMP contender: {error}"),
    }
}

/// Needs `GGML_DIR`, the folder that ggml was installed into. It must have been built without OpenMP, which would take
/// the place of its own pool.
fn ggml() {
    println!("cargo::rerun-if-changed=src/ggml.c");
    println!("cargo::rerun-if-env-changed=GGML_DIR");
    let Some(folder) = std::env::var_os("GGML_DIR").map(PathBuf::from) else {
        println!("cargo::warning=no ggml contender: GGML_DIR is not set");
        return;
    };
    let compiled =
        cc::Build::new().file("src/ggml.c").include(folder.join("include")).opt_level(3).try_compile("contender_ggml");
    match compiled {
        Ok(()) => {
            let libraries = folder.join("lib");
            println!("cargo::rustc-link-search=native={}", libraries.display());
            for library in ["ggml-cpu", "ggml-base"] {
                println!("cargo::rustc-link-lib=dylib={library}");
            }
            println!("cargo::rustc-link-arg=-Wl,-rpath,{}", libraries.display());
            println!("cargo::rustc-cfg=ggml");
        }
        Err(error) => println!("cargo::warning=no ggml contender: {error}"),
    }
}
