//! Detection, names and the override.

use halfbyte_cpu_kernels::{ISA_VARIABLE, Isa};
use std::process::Command;

/// Field cases: every path that the CPU can run is there to be forced, a slower one too; scalar always works.
#[test]
fn names_lead_to_paths_or_say_why_not() {
    let available = Isa::available();
    println!("paths in this build: {:?}, on this machine: {available:?}", Isa::known());
    assert_eq!(available[0], Isa::scalar());
    assert_eq!(available.last(), Some(&Isa::fastest()));
    assert!(available.is_sorted());
    let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
    for name in Isa::known() {
        match Isa::by_name(name) {
            Ok(isa) => {
                assert!(available.contains(&isa));
                assert_eq!((isa.name(), isa.to_string().as_str()), (name, name));
            }
            Err(error) => {
                assert!(!names.contains(&name));
                let want = format!(
                    "ISA path {name:?} can't run on this machine; available here: {}",
                    names.join(", ")
                );
                assert_eq!(error.to_string(), want);
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        assert_eq!(Isa::known(), ["scalar", "avx2", "avx-vnni", "avx512-vnni"]);
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        assert_eq!(names.contains(&"avx2"), avx2 && is_x86_feature_detected!("f16c"));
    }
    #[cfg(target_arch = "aarch64")]
    {
        assert_eq!(Isa::known(), ["scalar", "neon-dotprod"]);
        let dotprod = std::arch::is_aarch64_feature_detected!("dotprod");
        assert_eq!(names.contains(&"neon-dotprod"), dotprod);
    }
}

/// `Isa::best` reads the environment once per process, so each case is this test in a process of its own, told by
/// a second variable to print what it got.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "a program can't start another there")]
fn the_environment_overrides_the_best_path() {
    const CHILD: &str = "HALFBYTE_TEST_PRINT_BEST_ISA";
    if std::env::var_os(CHILD).is_some() {
        let best = Isa::best().map_or_else(|error| error.to_string(), |isa| isa.to_string());
        println!("best: {best}.");
        return;
    }
    let best = |name: Option<&str>| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "isa::the_environment_overrides_the_best_path", "--nocapture"]);
        child.env(CHILD, "1").env_remove(ISA_VARIABLE);
        if let Some(name) = name {
            child.env(ISA_VARIABLE, name);
        }
        let output = child.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let start = text.find("best: ").expect(&text) + "best: ".len();
        text[start..].split_once(".\n").expect(&text).0.to_owned()
    };
    assert_eq!(best(None), Isa::fastest().name());
    for isa in Isa::available() {
        assert_eq!(best(Some(isa.name())), isa.name());
    }
    let known = Isa::known().join(", ");
    assert_eq!(best(Some("sse9")), format!("unknown ISA path \"sse9\"; this build knows: {known}"));
    // An empty variable is as good as none.
    assert_eq!(best(Some("")), Isa::fastest().name());
    for name in Isa::known() {
        if let Err(error) = Isa::by_name(name) {
            assert_eq!(best(Some(name)), error.to_string());
        }
    }
}
