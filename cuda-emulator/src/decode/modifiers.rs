//! An opcode and its modifiers, each of which is removed when a decoder has understood it.

use crate::ptx::Type;

/// `cvt.rn.bf16x2.f32` as an opcode and the modifiers after it. A modifier that no decoder takes is refused by name.
#[derive(Debug, Clone)]
pub(crate) struct Modifiers<'a> {
    text: &'a str,
    opcode: &'a str,
    parts: Vec<(&'a str, bool)>,
}

impl<'a> Modifiers<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut parts = text.split('.');
        let opcode = parts.next().unwrap_or_default();
        Self { text, opcode, parts: parts.map(|part| (part, false)).collect() }
    }

    /// As written.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) fn opcode(&self) -> &'a str {
        self.opcode
    }

    /// Whether the modifier is there; takes it.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        match self.parts.iter_mut().find(|(part, used)| !used && *part == name) {
            Some((_, used)) => {
                *used = true;
                true
            }
            None => false,
        }
    }

    /// The first of `names` that is there; takes it.
    pub(crate) fn take_any(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.take(name))
    }

    /// The first type not taken yet; takes it.
    pub(crate) fn take_type(&mut self) -> Option<Type> {
        self.parts.iter_mut().filter(|(_, used)| !used).find_map(|(part, used)| {
            let ty = Type::of(part);
            *used = ty.is_some();
            ty
        })
    }

    /// The last type, taken or not; takes it.
    pub(crate) fn last_type(&mut self) -> Option<Type> {
        self.parts.iter_mut().rev().find_map(|(part, used)| {
            let ty = Type::of(part);
            *used |= ty.is_some();
            ty
        })
    }

    /// The first modifier that starts with `prefix`; takes it.
    pub(crate) fn take_prefixed(&mut self, prefix: &str) -> Option<&'a str> {
        let (part, used) = self.parts.iter_mut().find(|(part, used)| !used && part.starts_with(prefix))?;
        *used = true;
        Some(part)
    }

    /// A modifier that no decoder took.
    pub(crate) fn unknown(&self) -> Option<&'a str> {
        self.parts.iter().find(|(_, used)| !used).map(|(part, _)| *part)
    }
}
