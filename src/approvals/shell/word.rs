//! Words, patterns and here documents: their values, and the commands of their substitutions.

use shuck_ast::{
    BourneParameterExpansion, ConditionalExpr, HeredocBody, HeredocBodyMode, HeredocBodyPart, ParameterExpansion,
    ParameterExpansionSyntax, Pattern, PatternPart, Span, Word, WordPart, WordPartNode,
};

use super::{
    ShellWord, Unclear,
    reader::{CommandReader, Script},
};

impl CommandReader {
    pub(super) fn condition(&mut self, condition: &ConditionalExpr, script: Script<'_>) -> Result<(), Unclear> {
        match condition {
            ConditionalExpr::Binary(binary) => {
                self.condition(&binary.left, script)?;
                self.condition(&binary.right, script)
            }
            ConditionalExpr::Unary(unary) => self.condition(&unary.expr, script),
            ConditionalExpr::Parenthesized(inner) => self.condition(&inner.expr, script),
            ConditionalExpr::Word(word) | ConditionalExpr::Regex(word) => self.word(word, script).map(drop),
            ConditionalExpr::Pattern(pattern) => self.pattern(pattern, script),
            ConditionalExpr::VarRef(variable) => no_substitution(variable.span.slice(script.source)),
        }
    }

    pub(super) fn pattern(&mut self, pattern: &Pattern, script: Script<'_>) -> Result<(), Unclear> {
        pattern.parts.iter().try_for_each(|part| match &part.kind {
            PatternPart::Word(word) => self.word(word, script).map(drop),
            PatternPart::Literal(_) | PatternPart::AnyString | PatternPart::AnyChar => Ok(()),
            PatternPart::CharClass(_) | PatternPart::Group { .. } => no_substitution(part.span.slice(script.source)),
        })
    }

    /// Returns the text of a here document. `None` if an expansion decides about the text.
    pub(super) fn here_document(&mut self, body: &HeredocBody, script: Script<'_>) -> Result<Option<String>, Unclear> {
        let mut text = Some(String::new());
        for part in &body.parts {
            match &part.kind {
                HeredocBodyPart::Literal(literal) => {
                    if body.mode == HeredocBodyMode::Expanding {
                        no_unread_substitution(part.span.slice(script.source))?;
                    }
                    let piece = literal.as_str(script.source, part.span);
                    text = text.map(|text| text + piece);
                }
                HeredocBodyPart::CommandSubstitution { .. } => {
                    self.substitution(part.span.slice(script.source), script)?;
                    text = None;
                }
                HeredocBodyPart::Variable(_) => text = None,
                HeredocBodyPart::ArithmeticExpansion { expression_word_ast, .. } => {
                    self.word(expression_word_ast, script)?;
                    text = None;
                }
                HeredocBodyPart::Parameter(parameter) => {
                    self.parameter(parameter, script)?;
                    text = None;
                }
            }
        }
        Ok(text)
    }

    /// Returns the value of a word, and reads the commands of its substitutions.
    pub(super) fn word(&mut self, word: &Word, script: Script<'_>) -> Result<ShellWord, Unclear> {
        let mut value = WordValue { text: String::new(), is_fixed: !word.has_active_brace_expansion() };
        self.parts(&word.parts, script, &mut value, false)?;
        match value.is_fixed {
            true => Ok(ShellWord::fixed(value.text)),
            false => Ok(ShellWord::open(word.span.slice(script.source))),
        }
    }

    fn parts(
        &mut self,
        parts: &[WordPartNode],
        script: Script<'_>,
        value: &mut WordValue,
        is_quoted: bool,
    ) -> Result<(), Unclear> {
        for part in parts {
            match &part.kind {
                WordPart::Literal(literal) => {
                    let text = literal.as_str(script.source, part.span);
                    no_unread_substitution(part.span.slice(script.source))?;
                    match is_quoted {
                        true => value.text.push_str(text),
                        false => value.add_unquoted(text),
                    }
                    continue;
                }
                WordPart::SingleQuoted { value: text, .. } => {
                    value.text.push_str(text.slice(script.source));
                    continue;
                }
                WordPart::DoubleQuoted { parts, .. } => {
                    self.parts(parts, script, value, true)?;
                    continue;
                }
                WordPart::CommandSubstitution { .. } | WordPart::ProcessSubstitution { .. } => {
                    self.substitution(part.span.slice(script.source), script)?;
                }
                WordPart::Variable(_) => {}
                WordPart::Parameter(parameter) => self.parameter(parameter, script)?,
                WordPart::ArithmeticExpansion { expression_word_ast, .. } => {
                    self.word(expression_word_ast, script)?;
                }
                WordPart::ZshQualifiedGlob(_)
                | WordPart::ParameterExpansion { .. }
                | WordPart::Length(_)
                | WordPart::ArrayAccess(_)
                | WordPart::ArrayLength(_)
                | WordPart::ArrayIndices(_)
                | WordPart::Substring { .. }
                | WordPart::ArraySlice { .. }
                | WordPart::IndirectExpansion { .. }
                | WordPart::PrefixMatch { .. }
                | WordPart::Transformation { .. } => no_hidden_command(part.span, script)?,
            }
            value.is_fixed = false;
        }
        Ok(())
    }

    /// Reads the commands of a substitution from its source.
    ///
    /// The parser's own tree of a substitution is not used: after a syntax error inside, the tree
    /// is empty, and the line counts as parsed.
    fn substitution(&mut self, source: &str, script: Script<'_>) -> Result<(), Unclear> {
        let round = ["$(", "<(", ">("].iter().find_map(|opening| source.strip_prefix(opening)?.strip_suffix(')'));
        let backticks = source.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        match (round, backticks) {
            (Some(inner), _) => self.script(inner, script.depth + 1),
            (None, Some(inner)) if !inner.contains('\\') => self.script(inner, script.depth + 1),
            (None, _) => Err(Unclear("a substitution has escapes; write it as `$(…)`".to_owned())),
        }
    }

    fn parameter(&mut self, parameter: &ParameterExpansion, script: Script<'_>) -> Result<(), Unclear> {
        if parameter.raw_body.slice(script.source).starts_with([' ', '\t', '\n', '|']) {
            return Err(Unclear("an expansion runs a command".to_owned()));
        }
        match &parameter.syntax {
            ParameterExpansionSyntax::Bourne(BourneParameterExpansion::Operation {
                operand_word_ast: Some(operand),
                ..
            }) => {
                // Substitutions of the operand are read. Elsewhere in the expansion, none may be.
                let outside =
                    parameter.raw_body.slice(script.source).replacen(operand.span.slice(script.source), "", 1);
                no_substitution(&outside)?;
                self.word(operand, script).map(drop)
            }
            ParameterExpansionSyntax::Bourne(BourneParameterExpansion::Transformation {
                operator: 'P' | 'E', ..
            }) => Err(Unclear("an expansion runs the text of a variable".to_owned())),
            ParameterExpansionSyntax::Bourne(_) => no_substitution(parameter.raw_body.slice(script.source)),
            ParameterExpansionSyntax::Zsh(_) => Err(Unclear("the command has syntax of another shell".to_owned())),
        }
    }
}

/// Value of a word that is being read.
struct WordValue {
    text: String,
    is_fixed: bool,
}

impl WordValue {
    /// Adds unquoted source text: removes backslashes, and finds globs.
    fn add_unquoted(&mut self, source: &str) {
        let mut characters = source.chars();
        while let Some(c) = characters.next() {
            match c {
                '\\' => match characters.next() {
                    Some('\n') => {}
                    Some(next) => self.text.push(next),
                    None => self.text.push('\\'),
                },
                '[' if !characters.as_str().contains(']') => self.text.push(c),
                '*' | '?' | '[' => {
                    self.is_fixed = false;
                    self.text.push(c);
                }
                c => self.text.push(c),
            }
        }
    }
}

/// Fails if a text that is not read further may contain a command.
pub(super) fn no_substitution(text: &str) -> Result<(), Unclear> {
    match ["$(", "`", "<(", ">(", "${ ", "${|"].into_iter().any(|opening| text.contains(opening)) {
        true => Err(Unclear("a substitution is inside another expansion".to_owned())),
        false => Ok(()),
    }
}

/// Fails if a literal contains a substitution that the parser gave up on.
fn no_unread_substitution(source: &str) -> Result<(), Unclear> {
    let mut characters = source.chars();
    while let Some(c) = characters.next() {
        let is_opening = match c {
            '\\' => {
                characters.next();
                false
            }
            '`' => true,
            '$' => characters.as_str().starts_with(['(', '{']),
            _ => false,
        };
        if is_opening {
            return Err(Unclear("a substitution cannot be parsed".to_owned()));
        }
    }
    Ok(())
}

fn no_hidden_command(span: Span, script: Script<'_>) -> Result<(), Unclear> {
    no_substitution(span.slice(script.source))
}
