//! A browser, driven through WebDriver: a few JSON requests to chromedriver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What WebDriver calls the field of an element's id.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A headless Chromium with one window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start(driver: &str) -> Self {
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{driver}: {error}"));
        let mut port = None;
        for line in BufReader::new(driver.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once("started successfully on port ") {
                port = Some(rest.trim_end_matches('.').parse().unwrap());
                break;
            }
        }
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self {
            driver,
            port: port.expect("chromedriver's port"),
            session: String::new(),
            _profile: profile,
        };
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--no-first-run".to_owned(),
            format!("--user-data-dir={}", browser._profile.path().display()),
        ];
        let options = json!({ "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": { "args": arguments },
                                               "goog:loggingPrefs": { "browser": "ALL" } } });
        let made = browser.command("POST", "/session", &json!({ "capabilities": options }));
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    pub(crate) fn open(&self, url: &str) {
        self.in_session("POST", "/url", &json!({ "url": url }));
    }

    pub(crate) fn click(&self, css: &str) {
        self.in_session("POST", &format!("/element/{}/click", self.find(css)), &json!({}));
    }

    pub(crate) fn type_into(&self, css: &str, text: &str) {
        self.in_session("POST", &format!("/element/{}/value", self.find(css)), &json!({ "text": text }));
    }

    /// The value of an expression.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let script = json!({ "script": format!("return {expression};"), "args": [] });
        self.in_session("POST", "/execute/sync", &script)
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait_for(&self, expression: &str) {
        let start = Instant::now();
        while self.eval(expression) != Value::Bool(true) {
            let page = || self.eval("document.body.innerText");
            assert!(start.elapsed() < Duration::from_secs(30), "never true: {expression}\n{}", page());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the browser's console says.
    pub(crate) fn console(&self) -> Value {
        self.in_session("POST", "/se/log", &json!({ "type": "browser" }))
    }

    fn find(&self, css: &str) -> String {
        let found = self.in_session("POST", "/element", &json!({ "using": "css selector", "value": css }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    fn in_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.command(method, &format!("/session/{}{path}", self.session), body)
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .unwrap();
        // The driver keeps the connection open, whatever it is asked: its answer has as many bytes as it says.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {answer}");
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.in_session("DELETE", "", &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
