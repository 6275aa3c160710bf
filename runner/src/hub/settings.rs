//! The hub's address, the token, and the folder of the cache.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::Error;

/// The hub that is used unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";

/// The hub's address, the token, and the folder of the cache.
#[derive(Clone)]
pub struct Settings {
    /// URL of the hub, without a `/` at its end.
    pub endpoint: String,
    /// The token that requests are sent with.
    pub token: Option<String>,
    /// The folder of the cache, with a folder for each repository.
    pub cache: PathBuf,
    /// Whether only the cache is used.
    pub offline: bool,
}

impl Settings {
    /// The settings that the environment gives: `HF_ENDPOINT`; `HF_TOKEN`, or the file that `HF_TOKEN_PATH` names, or `$HF_HOME/token`;
    /// `HF_HUB_CACHE`, or `$HF_HOME/hub`; `HF_HUB_OFFLINE`. `HF_HOME` is by default `huggingface` in `XDG_CACHE_HOME`, or in
    /// `~/.cache`.
    ///
    /// # Errors
    /// [`Error::NoHome`] if no variable gives a folder for files; [`Error::Endpoint`] if `HF_ENDPOINT` is not the URL of a
    /// server.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let cache_home = || {
            let home = || variable("HOME").map(PathBuf::from).or_else(std::env::home_dir);
            variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(home()?.join(".cache")))
        };
        let home = variable("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| cache_home().map(|folder| folder.join("huggingface")));
        let cache = variable("HF_HUB_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(home.as_ref()?.join("hub"))).ok_or(Error::NoHome)?;
        let token_file =
            variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join("token")));
        let saved = || std::fs::read_to_string(token_file?).ok();
        let token = text("HF_TOKEN").or_else(saved).map(|token| token.trim().to_owned());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if !["https://", "http://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            let problem = "expected a URL that starts with https:// or http://".to_owned();
            return Err(Error::Endpoint { got: endpoint, problem });
        }
        let offline = text("HF_HUB_OFFLINE")
            .is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.to_lowercase().as_str()));
        Ok(Self { endpoint, token: token.filter(|token| !token.is_empty()), cache, offline })
    }
}

impl fmt::Debug for Settings {
    /// Shows the settings without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        let find =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        Settings::from_variables(find)
    }

    #[test]
    fn where_files_are_kept() {
        for (variables, folder) in [
            (&[("HOME", "/home/me")][..], "/home/me/.cache/huggingface/hub"),
            (&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/c")], "/c/huggingface/hub"),
            (&[("HOME", "/home/me"), ("HF_HOME", "/hf"), ("HF_HUB_CACHE", "")], "/hf/hub"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/models")], "/models"),
        ] {
            assert_eq!(settings(variables).unwrap().cache, Path::new(folder));
        }
    }

    #[test]
    fn endpoint_token_and_offline() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "saved\n").unwrap();
        let home = ("HF_HOME", folder.path().to_str().unwrap());
        let plain = settings(&[home]).unwrap();
        assert_eq!((plain.endpoint.as_str(), plain.token.as_deref()), (ENDPOINT, Some("saved")));
        assert!(!plain.offline && !format!("{plain:?}").contains("saved"));
        let all =
            [home, ("HF_TOKEN", "mine"), ("HF_ENDPOINT", "http://127.0.0.1:9/"), ("HF_HUB_OFFLINE", "1")];
        let set = settings(&all).unwrap();
        assert_eq!((set.endpoint.as_str(), set.token.as_deref()), ("http://127.0.0.1:9", Some("mine")));
        assert!(set.offline);
        assert!(!settings(&[home, ("HF_HUB_OFFLINE", "0")]).unwrap().offline);
        assert_eq!(
            settings(&[home, ("HF_ENDPOINT", "ftp://x")]).unwrap_err().to_string(),
            "HF_ENDPOINT is ftp://x: expected a URL that starts with https:// or http://"
        );
    }
}
