//! Models by name from a hub, which is a server of this test: what is fetched, what is not fetched again, and what is
//! said when it goes wrong.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::hub_support::{COMMIT, Server};
use crate::source_support::{config, safetensors, tensors};
use halfbyte::hub::{Error, Hub, Location, Settings};
use halfbyte::source;

/// A hub's server, and a cache.
struct Setup {
    server: Server,
    cache: tempfile::TempDir,
    offline: bool,
}

impl Setup {
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self { server: Server::new(files), cache: tempfile::tempdir().unwrap(), offline: false }
    }

    fn fetch(&self, name: &str) -> Result<PathBuf, Error> {
        self.fetch_while(name, |_| ControlFlow::Continue(()))
    }

    fn fetch_while(&self, name: &str, go_on: impl Fn(u64) -> ControlFlow<()>) -> Result<PathBuf, Error> {
        let settings = Settings {
            endpoint: self.server.endpoint(),
            token: Some("secret".to_owned()),
            cache: self.cache.path().to_owned(),
            offline: self.offline,
        };
        Hub::new(settings)?.fetch(&name.parse()?, &mut |transfer| go_on(transfer.done))
    }

    #[track_caller]
    fn error(&self, name: &str) -> String {
        let text = self.fetch(name).unwrap_err().to_string();
        text.replace(&self.server.endpoint(), "HUB")
            .replace(&self.cache.path().display().to_string(), "CACHE")
    }

    fn blobs(&self) -> Vec<(String, u64)> {
        let folder = self.cache.path().join("models--o--r/blobs");
        let entries = fs::read_dir(folder).into_iter().flatten().map(Result::unwrap);
        let mut blobs: Vec<_> = entries
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
            .collect();
        blobs.sort();
        blobs
    }
}

#[test]
fn a_file_is_fetched_once_and_then_found() {
    let content = vec![7; 300_000];
    let mut setup = Setup::new(&[("m.gguf", &content), ("README.md", b"#")]);
    let path = setup.fetch("hf:o/r/m.gguf").unwrap();
    assert_eq!(path, setup.cache.path().join(format!("models--o--r/snapshots/{COMMIT}/m.gguf")));
    assert!(fs::read(&path).unwrap() == content);
    // Relative, so that the cache can be moved.
    #[cfg(unix)]
    assert!(fs::read_link(&path).unwrap().starts_with("../../blobs"));
    let file = format!("/o/r/resolve/{COMMIT}/m.gguf");
    assert_eq!(
        setup.server.take_requests(),
        ["GET /api/models/o/r/revision/main".to_owned(), format!("HEAD {file}"), format!("GET {file}")]
    );
    assert_eq!(setup.fetch("hf:o/r/m.gguf").unwrap(), path);
    assert_eq!(setup.server.take_requests(), ["GET /api/models/o/r/revision/main"]);
    setup.offline = true;
    assert_eq!(setup.fetch("hf:o/r/m.gguf").unwrap(), path);
    assert_eq!(setup.fetch("hf:o/r").unwrap(), path);
    assert_eq!(setup.fetch(&format!("hf:o/r/m.gguf@{COMMIT}")).unwrap(), path);
    assert!(setup.server.take_requests().is_empty());
    assert_eq!(
        setup.error("hf:o/r/other.gguf"),
        "hf:o/r/other.gguf: other.gguf is not in the cache CACHE, and HF_HUB_OFFLINE is set: run this once without \
         HF_HUB_OFFLINE and with a network, or copy the cache of a machine that has the model"
    );
    assert!(setup.error("hf:o/r/m.gguf@v2").starts_with("hf:o/r/m.gguf@v2: it is not in the cache CACHE"));
}

#[test]
fn without_a_network_the_cache_is_enough() {
    let setup = Setup::new(&[("m.gguf", b"weights")]);
    let path = setup.fetch("hf:o/r/m.gguf").unwrap();
    setup.server.stop();
    assert_eq!(setup.fetch("hf:o/r/m.gguf").unwrap(), path);
    let error = setup.error("hf:o/other");
    assert!(error.starts_with("cannot reach HUB/o/other: "), "{error}");
    assert!(error.ends_with("(with HF_HUB_OFFLINE=1 only the cache is asked)"), "{error}");
}

#[test]
fn the_hub_is_told_who_asks_and_nobody_else() {
    let setup = Setup::new(&[("a/b/m.gguf", b"weights"), ("x.gguf", b"x")]);
    // The bytes come from another host, as those of large files do.
    setup.server.set(|server| server.elsewhere = true);
    let path = setup.fetch("hf:o/r/a/b/m.gguf@v1.0").unwrap();
    assert_eq!(fs::read(path).unwrap(), b"weights");
    let requests = setup.server.take_requests_with_tokens();
    let expected = [true, true, true, false];
    assert_eq!(requests.iter().map(|(_, token)| *token).collect::<Vec<_>>(), expected, "{requests:?}");
    assert_eq!(requests[0].0, "GET /api/models/o/r/revision/v1.0");
    assert_eq!(requests[3].0, "GET /elsewhere/a/b/m.gguf");
}

#[test]
fn all_parts_of_a_split_model_come() {
    let names = [1, 2, 3].map(|n| format!("q/m-0000{n}-of-00003.gguf"));
    let mut files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    let setup = Setup::new(&files);
    // It is the only model.
    for name in ["hf:o/r", "hf:o/r/q/m-00001-of-00003.gguf"] {
        let path = setup.fetch(name).unwrap();
        assert!(path.ends_with(&names[0]));
        for name in &names {
            let part = path.with_file_name(Path::new(name).file_name().unwrap());
            assert_eq!(fs::read(part).unwrap(), name.as_bytes());
        }
    }
    files.remove(1);
    let setup = Setup::new(&files);
    assert_eq!(
        setup.error("hf:o/r"),
        "hf:o/r has no file q/m-00002-of-00003.gguf; it has \"q/m-00001-of-00003.gguf\""
    );
}

#[test]
fn a_directory_is_what_the_loader_reads() {
    let (config, weights) = (config().to_string(), safetensors(&tensors()));
    let tokenizer = crate::source_support::byte_level(
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}),
    );
    let tokenizer = tokenizer.to_string();
    let mut setup = Setup::new(&[
        ("config.json", config.as_bytes()),
        ("model.safetensors", &weights),
        ("tokenizer.json", tokenizer.as_bytes()),
        ("README.md", b"#"),
        ("onnx/model.onnx", b"no"),
    ]);
    let path = setup.fetch("hf:o/r").unwrap();
    assert!(path.ends_with(COMMIT));
    let file = source::open(&path).unwrap();
    assert_eq!(file.tensors().len(), tensors().len());
    assert!(file.metadata().get("tokenizer.ggml.model").is_some());
    let requests = setup.server.take_requests().join("\n");
    assert!(!requests.contains("README") && !requests.contains("onnx"), "{requests}");
    setup.offline = true;
    assert_eq!(setup.fetch("hf:o/r").unwrap(), path);
    fs::remove_file(path.join("model.safetensors")).unwrap();
    assert!(setup.error("hf:o/r").starts_with("hf:o/r: it is not in the cache"), "{}", setup.error("hf:o/r"));
}

#[test]
fn an_index_names_the_files_that_come() {
    let index =
        |file: &str| serde_json::json!({"weight_map": {"a": file, "b": "two.safetensors"}}).to_string();
    let (good, bad) = (index("one.safetensors"), index("../one.safetensors"));
    let files = |index| {
        [
            ("config.json", "{}"),
            ("model.safetensors.index.json", index),
            ("one.safetensors", "1"),
            ("two.safetensors", "2"),
            ("three.safetensors", "3"),
        ]
        .map(|(name, content): (&str, &str)| (name, content.as_bytes()))
    };
    let mut setup = Setup::new(&files(&good));
    let path = setup.fetch("hf:o/r").unwrap();
    assert!(path.join("one.safetensors").exists() && path.join("two.safetensors").exists());
    assert!(!path.join("three.safetensors").exists());
    fs::remove_file(path.join("two.safetensors")).unwrap();
    setup.offline = true;
    assert!(setup.error("hf:o/r").starts_with("hf:o/r: two.safetensors is not in the cache"));
    let setup = Setup::new(&files(&bad));
    let error = setup.error("hf:o/r");
    assert!(error.contains(r#"the file "../one.safetensors" of tensor "a" is not a name"#), "{error}");
}

#[test]
fn repositories_without_one_model() {
    let setup = Setup::new(&[("b-Q8_0.gguf", b"b"), ("a-Q4_0.gguf", b"a"), ("config.json", b"{}")]);
    assert_eq!(
        setup.error("hf:o/r"),
        "hf:o/r has 2 GGUF models: expected one of hf:o/r/a-Q4_0.gguf, hf:o/r/b-Q8_0.gguf"
    );
    assert_eq!(
        setup.error("hf:o/r/c.gguf"),
        "hf:o/r has no file c.gguf; it has \"a-Q4_0.gguf\", \"b-Q8_0.gguf\""
    );
    let setup = Setup::new(&[("pytorch_model.bin", b"b"), ("config.json", b"{}")]);
    assert_eq!(
        setup.error("hf:o/r"),
        "hf:o/r has no model for halfbyte: expected a .gguf file, or config.json and model.safetensors; it has \
         \"config.json\", \"pytorch_model.bin\""
    );
}

#[test]
fn refusals_say_what_to_do() {
    let setup = Setup::new(&[("m.gguf", b"weights")]);
    for (status, advice) in [
        (401, "private, or there is none of that name; set HF_TOKEN to a token of yours that may read it"),
        (403, "access has to be asked for on the repository's page"),
        (404, "there is no such repository or revision"),
        (429, "too many requests"),
        (503, "the server is in trouble"),
    ] {
        for only in ["/api/", "/resolve/"] {
            setup.server.set(|server| server.refuses = Some((only, status)));
            let error = setup.error("hf:o/r/m.gguf");
            assert!(error.starts_with("hf:o/r/m.gguf: HUB/o/r"), "{error}");
            assert!(error.contains(&format!(" answered {status}: ")) && error.contains(advice), "{error}");
        }
    }
    assert!(setup.blobs().is_empty());
}

#[test]
fn a_transfer_that_ends_early_goes_on_later() {
    let content: Vec<u8> = (0..200_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let setup = Setup::new(&[("m.gguf", &content)]);
    let hash = crate::hub_support::sha256(&content);
    let pointer = setup.cache.path().join(format!("models--o--r/snapshots/{COMMIT}/m.gguf"));
    setup.server.set(|server| server.cut_at = Some(50_000));
    let error = setup.error("hf:o/r/m.gguf");
    assert!(error.starts_with("m.gguf: the transfer ended after 50000 of 200000 bytes ("), "{error}");
    assert!(error.ends_with("; the same command goes on from there"), "{error}");
    // Nothing that could be taken for the file.
    assert!(!pointer.exists());
    assert_eq!(setup.blobs(), [(format!("{hash}.part"), 50_000)]);
    setup.server.set(|server| server.cut_at = None);
    setup.server.take_requests();
    assert!(fs::read(setup.fetch("hf:o/r/m.gguf").unwrap()).unwrap() == content);
    assert!(setup.server.take_requests().last().unwrap().ends_with(" bytes=50000-"));
    assert_eq!(setup.blobs(), [(hash.clone(), 200_000)]);

    // A server that knows no ranges sends all of it again.
    let setup = Setup::new(&[("m.gguf", &content)]);
    let stopped = setup.fetch_while("hf:o/r/m.gguf", |_| ControlFlow::Break(()));
    let message = stopped.unwrap_err().to_string();
    assert!(
        message.starts_with("stopped after ") && message.contains(" of 200000 bytes of m.gguf; "),
        "{message}"
    );
    setup.server.set(|server| server.no_ranges = true);
    assert!(fs::read(setup.fetch("hf:o/r/m.gguf").unwrap()).unwrap() == content);

    // A `.part` that is whole, one that is too long, one that is something else.
    for part in [content.clone(), vec![0; 300_000], vec![0; 100]] {
        let setup = Setup::new(&[("m.gguf", &content)]);
        let blobs = setup.cache.path().join("models--o--r/blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{hash}.part")), &part).unwrap();
        if part.len() == 100 {
            let error = setup.error("hf:o/r/m.gguf");
            assert!(error.starts_with("m.gguf: what came has the SHA-256 "), "{error}");
            assert!(error.ends_with(&format!(": expected {hash}; it was not kept, so try again")), "{error}");
        }
        assert!(fs::read(setup.fetch("hf:o/r/m.gguf").unwrap()).unwrap() == content);
    }
}

#[test]
fn two_programs_do_not_write_one_file() {
    let setup = Setup::new(&[("m.gguf", b"weights")]);
    let blobs = setup.cache.path().join("models--o--r/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part =
        fs::File::create(blobs.join(format!("{}.part", crate::hub_support::sha256(b"weights")))).unwrap();
    part.lock().unwrap();
    assert_eq!(
        setup.error("hf:o/r/m.gguf"),
        "m.gguf is being fetched by another program: wait for it, and try again"
    );
}

#[test]
fn a_hub_that_lies_writes_nowhere() {
    let setup = Setup::new(&[("m.gguf", b"weights"), ("../../up.gguf", b"x"), ("/etc/x.gguf", b"x")]);
    // Names that lead out are none of a model.
    assert!(setup.fetch("hf:o/r").unwrap().ends_with("m.gguf"));
    for etag in ["../../../x", "/tmp/x", "", "a b c d e f g", "x"] {
        let setup = Setup::new(&[("m.gguf", b"weights")]);
        setup.server.set(|server| server.etag = Some(etag.to_owned()));
        let error = setup.error("hf:o/r/m.gguf");
        assert!(error.contains("expected the hash of the file in the header etag, got "), "{error}");
        assert!(setup.blobs().is_empty());
    }
    for commit in ["../../x", "", "0123456789/x"] {
        let setup = Setup::new(&[("m.gguf", b"weights")]);
        setup.server.set(|server| server.commit = commit.to_owned());
        assert_eq!(setup.error("hf:o/r"), format!("HUB: expected the name of a commit, got {commit:?}"));
    }
    let setup = Setup::new(&[("m.gguf", b"weights")]);
    setup.server.set(|server| server.list = Some("[]".to_owned()));
    assert!(setup.error("hf:o/r").starts_with("HUB/o/r: expected a list of files, got "));
}

#[test]
fn names() {
    for name in ["hf:o/r", "hf:o/r/a.gguf", "hf:Org-1/R_2.x/dir/a-Q4_0.gguf@refs/pr/3", "hf:o/r@v1.0"] {
        assert_eq!(name.parse::<Location>().unwrap().to_string(), name);
    }
    let end =
        "; expected hf:OWNER/REPO or hf:OWNER/REPO/FILE.gguf, with @REVISION behind it if it is not main";
    for (name, problem) in [
        ("o/r", "it does not start with hf:"),
        ("hf:r", "it has no owner and repository with a / between"),
        ("hf:", "it has no owner and repository with a / between"),
        ("hf:/r", "\"\" is no name of owner"),
        ("hf:../r", "\"..\" is no name of owner"),
        ("hf:o/..", "\"..\" is no name of repository"),
        ("hf:o/r--x", "\"r--x\" is no name of repository"),
        ("hf:o/r x", "\"r x\" is no name of repository"),
        ("hf:o/r/", "\"\" is no file in a repository"),
        ("hf:o/r/../x.gguf", "\"../x.gguf\" is no file in a repository"),
        ("hf:o/r//etc/x.gguf", "\"/etc/x.gguf\" is no file in a repository"),
        ("hf:o/r/a\\b.gguf", "\"a\\\\b.gguf\" is no file in a repository"),
        ("hf:o/r/x.gguf?y.gguf", "\"x.gguf?y.gguf\" is no file in a repository"),
        ("hf:o/r/model.safetensors", "\"model.safetensors\" is no GGUF file"),
        ("hf:o/r@", "\"\" is no name of a revision"),
        ("hf:o/r@../x", "\"../x\" is no name of a revision"),
    ] {
        assert_eq!(name.parse::<Location>().unwrap_err().to_string(), format!("{name:?}: {problem}{end}"));
    }
}
