//! What a new file may take the place of.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use halfbyte_gguf::AtomicFile;

/// The names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_is_no_regular_file_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let error = |name: &str| AtomicFile::create(at(name)).unwrap_err().to_string();
    let message = |name: &str, got: &str| {
        format!(
            "cannot write {}: it is {got}, expected a regular file or a name that is not in use",
            at(name).display()
        )
    };

    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink("pipe", at("to_pipe")).unwrap();
    symlink("folder", at("to_folder")).unwrap();
    symlink("nothing", at("to_nothing")).unwrap();
    symlink("to_itself", at("to_itself")).unwrap();
    let before = names(dir.path());
    for (name, got) in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("folder", "a directory"),
        ("to_pipe", "a pipe"),
        ("to_folder", "a directory"),
        ("to_nothing", "a link that leads nowhere"),
        ("to_itself", "a link that leads nowhere"),
    ] {
        assert_eq!(error(name), message(name, got));
    }
    assert_eq!(names(dir.path()), before);
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(at("socket")).unwrap().file_type().is_socket());
    assert!(fs::symlink_metadata(at("to_pipe")).unwrap().is_symlink());
}

#[test]
fn a_link_to_a_file_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (link, folder) = (dir.path().join("link"), dir.path().join("folder"));
    let target = folder.join("target");
    fs::create_dir(&folder).unwrap();
    fs::write(&target, "old").unwrap();
    symlink("folder/target", &link).unwrap();

    let mut file = AtomicFile::create(&link).unwrap();
    file.write_all(b"new").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"old");
    file.commit().unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("folder/target"));
    assert_eq!(
        (names(dir.path()), names(&folder)),
        (vec!["folder".into(), "link".into()], vec!["target".into()])
    );
}

#[test]
fn what_appears_during_the_work_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = AtomicFile::create(&path).unwrap();
    let _listener = UnixListener::bind(&path).unwrap();
    assert!(file.commit().unwrap_err().to_string().contains("it is a socket"));
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    assert_eq!(names(dir.path()), ["out"]);
}

/// In a process of its own, since it is about all writers of the process.
#[test]
fn unfinished_files_are_removed_before_an_exit() {
    const FOLDER: &str = "HALFBYTE_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let (first, done) = (folder.join("first"), folder.join("done"));
        let unfinished = AtomicFile::create(first).unwrap();
        AtomicFile::create(done).unwrap().commit().unwrap();
        assert_eq!(names(folder).len(), 2);
        AtomicFile::remove_unfinished();
        assert_eq!(names(folder), ["done"]);
        assert!(unfinished.commit().is_err());
        std::process::exit(0);
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "atomic::unfinished_files_are_removed_before_an_exit"]).env(FOLDER, dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(dir.path()), ["done"]);
}
