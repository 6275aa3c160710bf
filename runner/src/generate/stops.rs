//! Stop strings: texts that end a reply and are not part of it.

/// Passes a reply's text on, up to the first stop string.
///
/// A stop string may come in pieces, so an end of the text that could be the start of one is held back.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text not passed on yet; no stop string is in it.
    held: String,
}

/// What can be passed on of the text so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The reply goes on after this text, in which no stop string can begin.
    Text(String),
    /// The last text of the reply: a stop string follows it.
    Last(String),
}

impl StopStrings {
    /// The strings that end a reply. Empty ones are left out.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// Takes the next piece of the reply.
    pub fn push(&mut self, text: &str) -> Passed {
        self.held.push_str(text);
        if let Some(start) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(start);
            return Passed::Last(std::mem::take(&mut self.held));
        }
        let safe = self.held.len() - self.stops.iter().map(|stop| self.overlap(stop)).max().unwrap_or(0);
        let rest = self.held.split_off(safe);
        Passed::Text(std::mem::replace(&mut self.held, rest))
    }

    /// Gives what was held back: the reply has ended, so that it is part of it.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the held text that `stop` begins with.
    fn overlap(&self, stop: &str) -> usize {
        let starts = stop.char_indices().map(|(i, _)| i).filter(|&i| i > 0).rev();
        starts.into_iter().find(|&i| self.held.ends_with(&stop[..i])).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is passed on of a text in pieces, and whether it was stopped.
    fn through(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut stops = StopStrings::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let mut out = String::new();
        for piece in pieces {
            match stops.push(piece) {
                Passed::Text(text) => out.push_str(&text),
                Passed::Last(text) => return (out + &text, true),
            }
        }
        (out + &stops.finish(), false)
    }

    #[test]
    fn a_stop_string_ends_the_text_however_it_is_cut() {
        let text = "one ENtwo ENDthree";
        for cut in 0..text.len() {
            assert_eq!(through(&["END"], &[&text[..cut], &text[cut..]]), ("one ENtwo ".to_owned(), true));
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(through(&["END"], &letters), ("one ENtwo ".to_owned(), true));
    }

    #[test]
    fn the_first_of_several_ends_it() {
        assert_eq!(through(&["ccc", "b", ""], &["aa", "abccc"]), ("aaa".to_owned(), true));
        assert_eq!(through(&["b\n", "\n\n"], &["a\n", "b", "\nc"]), ("a\n".to_owned(), true));
    }

    #[test]
    fn a_start_that_is_none_comes_out_after_all() {
        assert_eq!(through(&["END"], &["E", "N", "d"]), ("ENd".to_owned(), false));
        assert_eq!(through(&["END"], &["an EN"]), ("an EN".to_owned(), false));
        assert_eq!(through(&[], &["a", "b"]), ("ab".to_owned(), false));
        assert_eq!(through(&["äöü"], &["xä", "ö", "x"]), ("xäöx".to_owned(), false));
        assert_eq!(through(&["aab"], &["aa", "ab"]), ("a".to_owned(), true));
    }

    #[test]
    fn nothing_waits_that_no_stop_begins_with() {
        let mut stops = StopStrings::new(vec!["###".to_owned()]);
        assert_eq!(stops.push("text #"), Passed::Text("text ".to_owned()));
        assert_eq!(stops.push("1"), Passed::Text("#1".to_owned()));
    }
}
