//! The server and the clients that people have: OpenAI's Python package, and a browser on the built-in page.
//!
//! `HALFBYTE_OPENAI_PYTHON` names a Python that has the package `openai`, `HALFBYTE_CHROMEDRIVER` a chromedriver. Where
//! they are not set a test says that it was skipped; with `HALFBYTE_REQUIRE_CLIENTS` that is a failure
//! (`cargo xtask clients` sets all three).

use std::process::Command;

use crate::browser::Browser;
use crate::support::Server;
use halfbyte_server::ServeOptions;
use serde_json::{Value, json};

/// The program that a variable names.
fn client(variable: &str) -> Option<String> {
    let program = std::env::var(variable).ok();
    if program.is_none() {
        assert!(std::env::var_os("HALFBYTE_REQUIRE_CLIENTS").is_none(), "{variable} is not set");
        println!("SKIPPED: {variable} is not set");
    }
    program
}

#[test]
fn the_official_client_understands_every_answer() {
    let Some(python) = client("HALFBYTE_OPENAI_PYTHON") else { return };
    let options = ServeOptions { api_key: Some("secret".into()), ..ServeOptions::new("tiny") };
    let server = Server::start(2, 256, options);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/openai_client.py");
    let url = format!("http://{}/v1", server.address);
    let output = Command::new(python).args([script, &url, "secret", "tiny"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("openai {}", seen["version"]);
    assert_eq!(seen["chat"], seen["streamed"]);
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 10, "temperature": 0 }).to_string();
    let headers = ["Content-Type: application/json", "Authorization: Bearer secret"];
    let own = server.send("POST", "/v1/completions", &headers, &body).read().json();
    assert_eq!(seen["text"], own["choices"][0]["text"]);
    assert!(seen["text"].as_str().unwrap().len() > 10, "{seen}");
    let errors: Vec<&str> = seen["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    assert!(errors[0].contains("no model \"gpt\""), "{errors:?}");
    assert!(errors[1].contains("n is not supported"), "{errors:?}");
    assert!(errors[2].contains("the API key is missing or wrong"), "{errors:?}");
    server.join();
}

/// Clicks "stop" in the page itself: by the time a driver has clicked, a small model has said all.
const STOP_AT_THE_FIRST_WORDS: &str = r"new MutationObserver((_, observer) => {
    if (!(document.querySelectorAll('.assistant')[1]?.textContent.length > 5)) return;
    observer.disconnect();
    window.stopWasShown = document.getElementById('stop').offsetParent !== null;
    document.getElementById('stop').click();
}).observe(document.getElementById('log'), { childList: true, subtree: true })";

#[test]
fn the_page_chats() {
    let Some(driver) = client("HALFBYTE_CHROMEDRIVER") else { return };
    let server = Server::start(1, 512, ServeOptions::new("tiny <model>"));
    let browser = Browser::start(&driver);
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for("document.getElementById('model').textContent === 'tiny <model>'");
    browser.click("summary");
    browser.type_into("#temperature", "0");
    browser.type_into("#tokens", "12");
    let request = json!({ "messages": [{ "role": "user", "content": "<b>Hi</b>" }], "max_tokens": 12, "temperature": 0 });
    let expected = server.post("/v1/chat/completions", &request).json();
    let expected = expected["choices"][0]["message"]["content"].as_str().unwrap();

    browser.type_into("#text", "<b>Hi</b>");
    browser.click("#send");
    browser.wait_for("document.querySelectorAll('.note').length === 1");
    // What is typed and what comes is text, never markup.
    assert_eq!(browser.eval("document.querySelector('.user').innerHTML"), "&lt;b&gt;Hi&lt;/b&gt;");
    assert_eq!(browser.eval("document.querySelector('.assistant').textContent"), expected);
    assert!(
        browser.eval("document.querySelector('.note').textContent").as_str().unwrap().contains("+ 12 tokens")
    );

    // A second turn, by the Enter key, without a limit: it is stopped, and the page is ready for the next.
    browser.eval("document.getElementById('tokens').value = ''");
    browser.eval(STOP_AT_THE_FIRST_WORDS);
    browser.type_into("#text", "And then?\u{e007}");
    browser.wait_for("window.stopWasShown === true");
    browser.wait_for("!document.getElementById('send').hidden && document.getElementById('stop').hidden");
    assert_eq!(
        browser.eval("document.querySelectorAll('.note').length"),
        1,
        "the second reply came to its end"
    );
    // An error is shown, and the question given back.
    browser.eval("document.getElementById('tokens').value = '0'");
    browser.type_into("#text", "Again");
    browser.click("#send");
    browser.wait_for("document.querySelector('#log .error') !== null");
    let error = browser.eval("document.querySelector('#log .error').textContent");
    assert!(error.as_str().unwrap().contains("expected at least 1"), "{error}");
    assert_eq!(browser.eval("document.getElementById('text').value"), "Again");
    browser.click("#clear");
    browser.wait_for("document.getElementById('log').children.length === 0");
    // The refused request is all that the console may complain of.
    let console = browser.console();
    let complains = |entry: &&Value| {
        entry["level"] != "DEBUG" && !entry["message"].as_str().unwrap().contains("status of 400")
    };
    let others: Vec<&Value> = console.as_array().unwrap().iter().filter(complains).collect();
    assert!(others.is_empty(), "{others:?}");
    drop(browser);
    server.join();
}

/// Scrolls to the top as a reader would, at the first words of the second reply.
const SCROLL_UP_AT_THE_FIRST_WORDS: &str = r"new MutationObserver((_, observer) => {
    if (!(document.querySelectorAll('.assistant')[1]?.textContent.length > 5)) return;
    observer.disconnect();
    document.getElementById('log').scrollTop = 0;
    window.scrolledUp = true;
}).observe(document.getElementById('log'), { childList: true, subtree: true })";

#[test]
fn the_page_stays_where_its_reader_scrolls() {
    let Some(driver) = client("HALFBYTE_CHROMEDRIVER") else { return };
    let server = Server::start(1, 512, ServeOptions::new("tiny"));
    let browser = Browser::start(&driver);
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for("document.getElementById('model').textContent === 'tiny'");
    browser.eval("document.getElementById('log').style = 'flex: none; height: 60px'");
    browser.eval("document.getElementById('tokens').value = '80'");
    let hidden =
        "(log => log.scrollHeight - log.clientHeight - log.scrollTop)(document.getElementById('log'))";
    browser.type_into("#text", "Once upon a time\u{e007}");
    browser.wait_for("document.querySelectorAll('.note').length === 1");
    // The end is in view, unless the reader has scrolled up.
    browser.wait_for(&format!("{hidden} < 2 && document.getElementById('log').scrollTop > 0"));
    browser.eval(SCROLL_UP_AT_THE_FIRST_WORDS);
    browser.type_into("#text", "And then?\u{e007}");
    browser.wait_for("window.scrolledUp === true && document.querySelectorAll('.note').length === 2");
    assert_eq!(browser.eval("document.getElementById('log').scrollTop"), 0);
    // The next message is in view again.
    browser.type_into("#text", "More\u{e007}");
    browser.wait_for("document.querySelectorAll('.note').length === 3");
    browser.wait_for(&format!("{hidden} < 2"));
    drop(browser);
    server.join();
}

#[test]
fn the_page_says_that_a_model_cannot_chat() {
    let Some(driver) = client("HALFBYTE_CHROMEDRIVER") else { return };
    let server = Server::start_without_template();
    let browser = Browser::start(&driver);
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for("document.getElementById('model').textContent === 'tiny'");
    let notice = browser.eval("document.getElementById('notice').textContent");
    assert!(notice.as_str().unwrap().contains("the model has no chat template"), "{notice}");
    assert_eq!(browser.eval("document.getElementById('send').disabled"), true);
    drop(browser);
    server.join();
}
