//! Models by name from a hub, which is a server of this test, on the command line.

use crate::hub_support::{COMMIT, Server};
use crate::support::halfbyte;

#[test]
fn commands_take_models_of_the_hub() {
    let model = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let bytes = model.contents().next().unwrap().to_vec();
    let server = Server::new(&[("small.gguf", &bytes)]);
    let home = tempfile::tempdir().unwrap();
    let run = |endpoint: &str, offline: &str, args: &[&str]| {
        let mut command = halfbyte(args);
        command.env("HF_ENDPOINT", endpoint).env("HF_HOME", home.path()).env("HF_HUB_OFFLINE", offline);
        for name in ["HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let endpoint = server.endpoint();
    let (done, out, err) = run(&endpoint, "", &["inspect", "--json", "--model", "hf:o/r/small.gguf"]);
    assert!(done && out.contains("general.architecture"), "{out}{err}");
    assert!(home.path().join(format!("hub/models--o--r/snapshots/{COMMIT}/small.gguf")).exists());
    let args = ["run", "-m", "hf:o/r", "-n", "4", "--seed", "1", "--threads", "1"];
    let (done, out, err) = run("http://127.0.0.1:1", "1", &args);
    assert!(done && !out.is_empty(), "{out}{err}");
    let (done, _, err) = run(&endpoint, "1", &["inspect", "hf:o/none"]);
    assert!(!done && err.contains("error: hf:o/none: it is not in the cache "), "{err}");
    let (done, _, err) = run(&endpoint, "0", &["inspect", "hf:../none"]);
    assert!(!done && err.contains("is no name of owner"), "{err}");
}
