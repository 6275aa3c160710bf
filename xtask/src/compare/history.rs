//! What was measured so far, as `docs/performance.json` keeps it: a list of runs, the newest last.

use anyhow::{Context, Result};
use serde_json::Value;

/// The runs of a file's text; none if there is no file yet.
///
/// # Errors
/// If it holds anything but a list.
pub(super) fn read(text: Option<&str>) -> Result<Vec<Value>> {
    text.map_or_else(
        || Ok(Vec::new()),
        |text| serde_json::from_str(text).context("expected a list of runs of `cargo xtask compare`"),
    )
}

/// Adds a run, in the place of one of the same machine, day and programs.
pub(super) fn add(runs: &mut Vec<Value>, run: Value) {
    let same = |old: &Value| ["machine", "date", "versions"].iter().all(|key| old[key] == run[key]);
    runs.retain(|old| !same(old));
    runs.push(run);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_takes_the_place_of_the_same_day_and_machine() {
        let run = |machine: &str, date: &str, n: u32| json!({"machine": machine, "date": date, "versions": {"halfbyte": "0.1.0"}, "entries": [n]});
        let mut runs = read(None).unwrap();
        for (machine, date, n) in [("a", "1", 1), ("b", "1", 2), ("a", "2", 3), ("a", "1", 4)] {
            add(&mut runs, run(machine, date, n));
        }
        assert_eq!(runs, [run("b", "1", 2), run("a", "2", 3), run("a", "1", 4)]);
        let text = serde_json::to_string(&runs).unwrap();
        assert_eq!(read(Some(&text)).unwrap(), runs);
        assert!(read(Some("{}")).unwrap_err().to_string().contains("expected a list of runs"));
    }
}
