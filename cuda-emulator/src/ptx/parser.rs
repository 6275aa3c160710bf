//! Directives of a module: functions, variables, files, sections.

use super::lexer::{Token, tokens};
use super::syntax::{Declaration, Function, Immediate, Initial, Source, Symbol, Type};
use crate::module::PtxError;

/// The largest variable, parameter or register range: a text cannot make this crate allocate more than that.
const MAX_COUNT: u64 = 1 << 28;

/// Parses a whole text.
pub(crate) fn parse(text: &str) -> Result<Source<'_>, PtxError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let mut source = Source::default();
    while parser.at < parser.tokens.len() {
        parser.directive(&mut source)?;
    }
    Ok(source)
}

/// A position in the tokens.
pub(super) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next token; an empty one at the end.
    pub(super) fn peek(&self) -> &'a str {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError { line: self.line(), message: message.into() })
    }

    pub(super) fn next(&mut self) -> Result<&'a str, PtxError> {
        let text = self.peek();
        if text.is_empty() {
            return self.error("the text ends in the middle");
        }
        self.at += 1;
        Ok(text)
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<(), PtxError> {
        if self.eat(text) {
            return Ok(());
        }
        self.error(format!("expected `{text}`, got `{}`", self.peek()))
    }

    /// A name: something that starts as an identifier does.
    pub(super) fn name(&mut self) -> Result<&'a str, PtxError> {
        let text = self.peek();
        if !text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%')) {
            return self.error(format!("expected a name, got `{text}`"));
        }
        self.next()
    }

    /// A number, with a sign.
    pub(super) fn immediate(&mut self) -> Result<Immediate, PtxError> {
        let negative = self.eat("-");
        let text = self.peek();
        let Some(value) = number(text) else {
            return self.error(format!("expected a number, got `{text}`"));
        };
        self.at += 1;
        Ok(match value {
            value if !negative => value,
            Immediate::Integer(x) => Immediate::Integer(x.wrapping_neg()),
            Immediate::Single(x) => Immediate::Single(x ^ 1 << 31),
            Immediate::Double(x) => Immediate::Double(x ^ 1 << 63),
        })
    }

    pub(super) fn integer(&mut self) -> Result<u64, PtxError> {
        match self.immediate()? {
            Immediate::Integer(x) => Ok(x),
            _ => self.error("expected an integer"),
        }
    }

    fn small(&mut self) -> Result<u32, PtxError> {
        let value = self.integer()?;
        u32::try_from(value).or_else(|_| self.error(format!("{value} is too large here")))
    }

    /// `+ n`, `- n` or nothing.
    pub(super) fn offset(&mut self) -> Result<i64, PtxError> {
        if self.eat("+") || self.peek() == "-" { Ok(self.integer()? as i64) } else { Ok(0) }
    }

    fn directive(&mut self, source: &mut Source<'a>) -> Result<(), PtxError> {
        match self.next()? {
            ".version" | ".address_size" => {
                self.next()?;
            }
            ".target" => {
                self.next()?;
                while self.eat(",") {
                    self.next()?;
                }
            }
            ".file" => {
                let number = self.small()?;
                let path = self.next()?.trim_start_matches('"');
                while self.eat(",") {
                    self.integer()?;
                }
                source.files.push((number, path));
            }
            ".section" => self.skip_section()?,
            ".pragma" => {
                while !self.eat(";") {
                    self.next()?;
                }
            }
            ".visible" | ".extern" | ".weak" | ".common" | ";" => {}
            ".entry" => source.functions.push(self.function(true)?),
            ".func" => source.functions.push(self.function(false)?),
            ".global" => self.variables("global", &mut source.variables)?,
            ".const" => self.variables("const", &mut source.variables)?,
            ".shared" => self.variables("shared", &mut source.variables)?,
            other => {
                self.at -= 1;
                return self.error(format!("unknown directive `{other}`"));
            }
        }
        Ok(())
    }

    /// Debug sections hold nothing that is executed.
    fn skip_section(&mut self) -> Result<(), PtxError> {
        while self.next()? != "{" {}
        let mut depth = 1;
        while depth > 0 {
            match self.next()? {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn function(&mut self, entry: bool) -> Result<Function<'a>, PtxError> {
        let line = self.line();
        let mut results = Vec::new();
        if self.eat("(") {
            results = self.params()?;
        }
        let name = self.name()?;
        let params = if self.eat("(") { self.params()? } else { Vec::new() };
        let mut function = Function {
            name,
            line,
            entry,
            results,
            params,
            max_threads: None,
            required_threads: None,
            min_blocks_per_sm: None,
            body: None,
        };
        loop {
            match self.next()? {
                ".maxntid" => function.max_threads = Some(self.triple()?),
                ".reqntid" => function.required_threads = Some(self.triple()?),
                ".minnctapersm" => function.min_blocks_per_sm = Some(self.small()?),
                ".maxnreg" => {
                    self.small()?;
                }
                ".noreturn" => {}
                ".pragma" => {
                    self.next()?;
                    self.expect(";")?;
                }
                ";" => return Ok(function),
                "{" => {
                    function.body = Some(self.body()?);
                    return Ok(function);
                }
                other => {
                    self.at -= 1;
                    return self.error(format!("unknown directive `{other}` of function `{name}`"));
                }
            }
        }
    }

    fn triple(&mut self) -> Result<[u32; 3], PtxError> {
        let mut values = [self.small()?, 1, 1];
        for value in &mut values[1..] {
            if self.eat(",") {
                *value = self.small()?;
            }
        }
        Ok(values)
    }

    fn params(&mut self) -> Result<Vec<Declaration<'a>>, PtxError> {
        let mut params = Vec::new();
        while !self.eat(")") {
            match self.next()? {
                ".param" => params.push(self.declaration("param")?),
                ".reg" => params.push(self.declaration("reg")?),
                other => return self.error(format!("expected a parameter, got `{other}`")),
            }
            self.eat(",");
        }
        Ok(params)
    }

    /// One or more declarations up to the semicolon; the space was read.
    pub(super) fn variables(
        &mut self,
        space: &'static str,
        into: &mut Vec<Declaration<'a>>,
    ) -> Result<(), PtxError> {
        into.push(self.declaration(space)?);
        while self.eat(",") {
            let first = &into[into.len() - 1];
            let (ty, align) = (first.ty, first.align);
            let next = self.declarator(space, ty, 1, align)?;
            into.push(next);
        }
        self.expect(";")
    }

    fn declaration(&mut self, space: &'static str) -> Result<Declaration<'a>, PtxError> {
        let (mut ty, mut align, mut lanes) = (None, 0, 1);
        loop {
            let word = self.peek();
            if !word.starts_with('.') {
                break;
            }
            self.at += 1;
            match word {
                ".align" => align = self.small()?,
                // The space and alignment a pointer parameter refers to: nothing to execute.
                ".ptr" => {
                    while self.peek().starts_with('.') {
                        if self.next()? == ".align" {
                            self.small()?;
                        }
                    }
                }
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                _ => match Type::of(&word[1..]) {
                    Some(found) => ty = Some(found),
                    None => {
                        self.at -= 1;
                        return self.error(format!("unknown attribute `{word}` of a variable"));
                    }
                },
            }
        }
        let Some(ty) = ty else {
            return self.error("a variable without a type");
        };
        if space == "reg" && lanes != 1 {
            return self.error("vector registers are not supported");
        }
        self.declarator(space, ty, lanes, align.max(ty.size() * lanes as u32))
    }

    fn declarator(
        &mut self,
        space: &'static str,
        ty: Type,
        lanes: u64,
        align: u32,
    ) -> Result<Declaration<'a>, PtxError> {
        let line = self.line();
        let name = self.name()?;
        if !align.is_power_of_two() || align > 1 << 16 {
            return self.error(format!("alignment {align} is not a power of two up to 65536"));
        }
        let (mut count, mut numbered) = (lanes, false);
        if self.eat("<") {
            count = self.integer()?;
            numbered = true;
            self.expect(">")?;
        }
        while self.eat("[") {
            let length = if self.peek() == "]" { 0 } else { self.integer()? };
            count = count.saturating_mul(length);
            self.expect("]")?;
        }
        if count > MAX_COUNT {
            return self.error(format!("`{name}` has {count} elements, at most {MAX_COUNT} are supported"));
        }
        let mut initial = Vec::new();
        if self.eat("=") {
            self.initialiser(&mut initial)?;
        }
        Ok(Declaration { space, name, line, ty, count, numbered, align, initial })
    }

    /// A value, or values in braces: their nesting says nothing that their order does not.
    fn initialiser(&mut self, initial: &mut Vec<Initial<'a>>) -> Result<(), PtxError> {
        let mut depth = 0;
        loop {
            match self.peek() {
                "{" => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                "}" => {
                    depth -= 1;
                    self.at += 1;
                }
                "generic" => {
                    self.at += 1;
                    self.expect("(")?;
                    let name = self.name()?;
                    self.expect(")")?;
                    initial.push(Initial::Address(Symbol { name, offset: self.offset()? }));
                }
                text if text == "-" || number(text).is_some() => {
                    initial.push(Initial::Number(self.immediate()?));
                }
                _ => {
                    let name = self.name()?;
                    initial.push(Initial::Address(Symbol { name, offset: self.offset()? }));
                }
            }
            if depth <= 0 {
                return if depth == 0 { Ok(()) } else { self.error("a closing brace too many") };
            }
            self.eat(",");
        }
    }
}

/// A number's value, if the word is one.
pub(super) fn number(text: &str) -> Option<Immediate> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    if let Some(digits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
        return u32::from_str_radix(digits, 16).ok().map(Immediate::Single);
    }
    if let Some(digits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
        return hex(digits).map(Immediate::Double);
    }
    if text.contains('.') {
        return text.parse::<f64>().ok().map(|x| Immediate::Double(x.to_bits()));
    }
    let digits = text.strip_suffix('U').unwrap_or(text);
    let value = if let Some(digits) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        hex(digits)
    } else if let Some(digits) = digits.strip_prefix("0b").or(digits.strip_prefix("0B")) {
        u64::from_str_radix(digits, 2).ok()
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    };
    value.map(Immediate::Integer)
}
