//! Benches of the workspace; this library is empty. `cargo bench -p halfbyte-benches` runs the Criterion benches in
//! `benches/`, and `compare/` holds side-by-side runs against other programs.
