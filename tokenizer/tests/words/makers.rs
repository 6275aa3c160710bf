//! The makers' own ids for llama.cpp's vocabulary files, where a tree of llama.cpp is at hand.
//!
//! llama.cpp keeps vocabulary-only GGUF files in `models/`, each with texts (`.inp`) and the ids that the maker's tokenizer
//! gives them (`.out`). The source package of llama-cpp-python contains them, in `vendor/llama.cpp/models`. They are large, so
//! this test runs where `HALFBYTE_VOCABULARIES` names that folder, and is passed over elsewhere.
#![allow(clippy::unwrap_used, reason = "an error or a missing value is what fails a test")]

use std::fs;
use std::path::PathBuf;

use halfbyte_gguf::Gguf;
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

#[test]
fn every_vocabulary_of_llama_cpp() {
    let Some(folder) = std::env::var_os("HALFBYTE_VOCABULARIES").map(PathBuf::from) else {
        eprintln!("skipped: HALFBYTE_VOCABULARIES does not name llama.cpp's folder models");
        return;
    };
    let (mut files, mut wrong) = (0, Vec::new());
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "gguf")) {
        let name = path.file_name().unwrap().to_string_lossy();
        let beside = |end: &str| fs::read_to_string(folder.join(format!("{name}{end}")));
        let gguf = Gguf::open(path).unwrap();
        let spec = TokenizerSpec::from_metadata(gguf.metadata()).unwrap();
        let tokenizer = match Tokenizer::new(&spec) {
            Ok(tokenizer) => tokenizer,
            Err(error) if beside(".out").is_err() => {
                eprintln!("{name}: {error}; there are no ids to compare with");
                continue;
            }
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let (Ok(texts), Ok(ids)) = (beside(".inp"), beside(".out")) else {
            eprintln!("{name}: loads; there are no ids to compare with");
            continue;
        };
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        let mut bad = 0;
        for (text, line) in texts.iter().zip(ids.lines()) {
            let want: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let got = tokenizer.encode(text, Special::Off).unwrap();
            if got != want {
                bad += 1;
                wrong.push(format!("{name}: {text:?}\n  expected {want:?}\n  got      {got:?}"));
            }
        }
        eprintln!("{name}: {} of {} texts agree", texts.len() - bad, texts.len());
        files += 1;
    }
    assert!(files > 0, "no vocabularies in {}", folder.display());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
