//! Compiles the OpenMP contender where a C compiler with OpenMP is there; elsewhere the comparison goes without it.

fn main() {
    println!("cargo::rerun-if-changed=src/openmp.c");
    println!("cargo::rustc-check-cfg=cfg(openmp)");
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
