//! Walk over the syntax tree of a command line.

use std::rc::Rc;

use shuck_ast::{
    ArrayElem, Assignment, AssignmentValue, BinaryOp, BuiltinCommand, Command, CompoundCommand, DeclOperand, Redirect,
    RedirectKind, RedirectTarget, Stmt, StmtSeq,
};

use super::{
    COMMAND_LIMIT, CommandLine, CommandRole, DEPTH_LIMIT, RedirectedFile, ShellCommand, ShellWord, Unclear, check_size,
    parser, unseen, variables::may_be_set, word::no_substitution, wrapper,
};
use crate::approvals::place::WorkDirs;

/// Standard input of a command, as far as the line tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandInput {
    /// Input of the line itself, or a file.
    Other,
    Pipe,
    /// Text of the line. `None` if an expansion decides about the text.
    Text(Option<String>),
}

/// Circumstances of a command.
#[derive(Debug, Clone)]
pub(super) struct CommandContext {
    pub input: CommandInput,
    pub variables: Rc<[String]>,
    pub pipeline: usize,
    pub position: usize,
    /// Depth of scripts inside arguments.
    pub depth: usize,
}

/// Collects the commands and the files of a line.
#[derive(Debug)]
pub(super) struct CommandReader {
    line: CommandLine,
    dirs: WorkDirs,
    /// Variables set by earlier commands.
    variables: Rc<[String]>,
    pipelines: usize,
}

/// Source of a script, with its depth and its place in a pipeline.
#[derive(Clone, Copy)]
pub(super) struct Script<'a> {
    pub source: &'a str,
    pub depth: usize,
    pipeline: usize,
    position: usize,
}

impl CommandReader {
    pub fn new(workspace: &str) -> CommandReader {
        CommandReader {
            line: CommandLine::default(),
            dirs: WorkDirs::new(workspace),
            variables: Rc::new([]),
            pipelines: 0,
        }
    }

    pub fn finish(self) -> CommandLine {
        self.line
    }

    /// Reads a script: the line itself, or the argument of `sh -c`.
    pub fn script(&mut self, source: &str, depth: usize) -> Result<(), Unclear> {
        if depth > DEPTH_LIMIT / 2 {
            return Err(Unclear("scripts inside scripts are nested too deep".to_owned()));
        }
        check_size(source)?;
        self.set(&may_be_set(source));
        if depth > 0
            && let Some(reason) = unseen::hidden_text(source)
        {
            return Err(Unclear(reason));
        }
        let parsed = parser(source).parse();
        if !parsed.is_ok() {
            let detail = parsed.diagnostics.first().map_or_else(
                || parsed.terminal_error.as_ref().map(ToString::to_string).unwrap_or_default(),
                |first| first.message.clone(),
            );
            return Err(Unclear(format!("the command cannot be parsed: {detail}")));
        }
        self.statements(&parsed.file.body, Script { source, depth, pipeline: 0, position: 0 })
    }

    fn statements(&mut self, statements: &StmtSeq, script: Script<'_>) -> Result<(), Unclear> {
        statements.iter().try_for_each(|statement| {
            self.pipelines += 1;
            self.statement(statement, Script { pipeline: self.pipelines, position: 0, ..script })
        })
    }

    /// Reads a statement. Chains of operators lean to the left, so the left side is a loop.
    fn statement(&mut self, statement: &Stmt, script: Script<'_>) -> Result<(), Unclear> {
        let mut chain = Vec::new();
        let mut first = statement;
        while let Command::Binary(binary) = &first.command {
            self.redirects(&first.redirects, script)?;
            chain.push((binary.op, &*binary.right));
            first = &binary.left;
        }
        let mut place = script;
        self.single(first, place)?;
        for (operator, right) in chain.into_iter().rev() {
            place = match operator {
                BinaryOp::Pipe | BinaryOp::PipeAll => Script { position: place.position + 1, ..place },
                BinaryOp::And | BinaryOp::Or => {
                    self.pipelines += 1;
                    Script { pipeline: self.pipelines, position: 0, ..place }
                }
            };
            match &right.command {
                Command::Binary(_) => self.statement(right, place)?,
                _ => self.single(right, place)?,
            }
        }
        Ok(())
    }

    fn single(&mut self, statement: &Stmt, script: Script<'_>) -> Result<(), Unclear> {
        let redirected = self.redirects(&statement.redirects, script)?;
        let input = match redirected {
            Some(input) => input,
            None if script.position > 0 => CommandInput::Pipe,
            None => CommandInput::Other,
        };
        match &statement.command {
            Command::Simple(simple) => {
                let own = self.assignments(&simple.assignments, script)?;
                let mut words = Vec::with_capacity(simple.args.len() + 1);
                for word in std::iter::once(&simple.name).chain(&simple.args) {
                    words.push(self.word(word, script)?);
                }
                let is_assignment =
                    words.len() == 1 && words[0].is_fixed && simple.name.span.slice(script.source).is_empty();
                if is_assignment {
                    self.set(&own);
                    return Ok(());
                }
                let variables = self.variables.iter().chain(&own).cloned().collect();
                let Script { pipeline, position, depth, .. } = script;
                wrapper::command(self, words, CommandContext { input, variables, pipeline, position, depth })
            }
            Command::Builtin(builtin) => {
                let (first, rest, assignments) = match builtin {
                    BuiltinCommand::Break(c) => (&c.depth, &c.extra_args, &c.assignments),
                    BuiltinCommand::Continue(c) => (&c.depth, &c.extra_args, &c.assignments),
                    BuiltinCommand::Return(c) => (&c.code, &c.extra_args, &c.assignments),
                    BuiltinCommand::Exit(c) => (&c.code, &c.extra_args, &c.assignments),
                };
                self.assignments(assignments, script)?;
                first.iter().chain(rest).try_for_each(|word| self.word(word, script).map(drop))
            }
            Command::Decl(declaration) => {
                let mut names = self.assignments(&declaration.assignments, script)?;
                for operand in &declaration.operands {
                    match operand {
                        DeclOperand::Flag(word) => {
                            let flag = self.word(word, script)?;
                            if !flag.is_fixed || flag.text.contains('n') {
                                return Err(Unclear("a variable stands for another one".to_owned()));
                            }
                        }
                        DeclOperand::Dynamic(word) => {
                            self.word(word, script)?;
                            return Err(Unclear("only the run decides which variable is set".to_owned()));
                        }
                        DeclOperand::Name(name) => no_substitution(name.span.slice(script.source))?,
                        DeclOperand::Assignment(assignment) => {
                            names.extend(self.assignments(std::slice::from_ref(assignment), script)?);
                        }
                    }
                }
                self.set(&names);
                Ok(())
            }
            Command::Compound(compound) => self.compound(compound, script),
            Command::Function(function) => self.statement(&function.body, script),
            Command::Binary(_) => self.statement(statement, script),
            Command::AnonymousFunction(_) => Err(Unclear("the command has syntax of another shell".to_owned())),
        }
    }

    fn compound(&mut self, compound: &CompoundCommand, script: Script<'_>) -> Result<(), Unclear> {
        match compound {
            CompoundCommand::If(command) => {
                let branches = command.elif_branches.iter().flat_map(|(condition, body)| [condition, body]);
                let parts = [&command.condition, &command.then_branch].into_iter().chain(branches);
                parts.chain(&command.else_branch).try_for_each(|part| self.statements(part, script))
            }
            CompoundCommand::For(command) => {
                for word in command.words.iter().flatten() {
                    self.word(word, script)?;
                }
                self.statements(&command.body, script)
            }
            CompoundCommand::Select(command) => {
                for word in &command.words {
                    self.word(word, script)?;
                }
                self.statements(&command.body, script)
            }
            CompoundCommand::ArithmeticFor(command) => {
                for span in [command.init_span, command.condition_span, command.step_span].into_iter().flatten() {
                    no_substitution(span.slice(script.source))?;
                }
                self.statements(&command.body, script)
            }
            CompoundCommand::While(command) => {
                self.statements(&command.condition, script)?;
                self.statements(&command.body, script)
            }
            CompoundCommand::Until(command) => {
                self.statements(&command.condition, script)?;
                self.statements(&command.body, script)
            }
            CompoundCommand::Case(command) => {
                self.word(&command.word, script)?;
                for item in &command.cases {
                    item.patterns.iter().try_for_each(|pattern| self.pattern(pattern, script))?;
                    self.statements(&item.body, script)?;
                }
                Ok(())
            }
            CompoundCommand::Subshell(body) | CompoundCommand::BraceGroup(body) => self.statements(body, script),
            CompoundCommand::Arithmetic(command) => {
                command.expr_span.map_or(Ok(()), |span| no_substitution(span.slice(script.source)))
            }
            CompoundCommand::Time(command) => {
                command.command.as_ref().map_or(Ok(()), |inner| self.statement(inner, script))
            }
            CompoundCommand::Conditional(command) => self.condition(&command.expression, script),
            CompoundCommand::Coproc(command) => self.statement(&command.body, script),
            CompoundCommand::Repeat(_) | CompoundCommand::Foreach(_) | CompoundCommand::Always(_) => {
                Err(Unclear("the command has syntax of another shell".to_owned()))
            }
        }
    }

    /// Reads redirections. Returns the standard input if one of them sets it.
    fn redirects(&mut self, redirects: &[Redirect], script: Script<'_>) -> Result<Option<CommandInput>, Unclear> {
        let mut input = None;
        for redirect in redirects {
            let is_input = redirect.fd.is_none_or(|fd| fd == 0);
            let word = match &redirect.target {
                RedirectTarget::Heredoc(document) => {
                    let text = self.here_document(&document.body, script)?;
                    input = is_input.then_some(CommandInput::Text(text)).or(input);
                    continue;
                }
                RedirectTarget::Word(word) => self.word(word, script)?,
            };
            let writes = match redirect.kind {
                RedirectKind::HereString => {
                    let text = word.value().map(|text| format!("{text}\n"));
                    input = is_input.then_some(CommandInput::Text(text)).or(input);
                    continue;
                }
                RedirectKind::DupOutput | RedirectKind::DupInput if is_descriptor(&word) => continue,
                RedirectKind::Input | RedirectKind::DupInput => {
                    input = is_input.then_some(CommandInput::Other).or(input);
                    false
                }
                RedirectKind::Output
                | RedirectKind::Clobber
                | RedirectKind::Append
                | RedirectKind::ReadWrite
                | RedirectKind::DupOutput
                | RedirectKind::OutputBoth => true,
                RedirectKind::HereDoc | RedirectKind::HereDocStrip => {
                    return Err(Unclear("the command has a here document without text".to_owned()));
                }
            };
            if !is_null_device(&word) {
                self.line.files.push(RedirectedFile { path: word, writes, dirs: self.dirs.clone() });
            }
        }
        Ok(input)
    }

    /// Reads the values of assignments. Returns the names of the variables.
    fn assignments(&mut self, assignments: &[Assignment], script: Script<'_>) -> Result<Vec<String>, Unclear> {
        let mut names = Vec::new();
        for assignment in assignments {
            if let Some(subscript) = &assignment.target.subscript {
                no_substitution(subscript.text.slice(script.source))?;
            }
            match &assignment.value {
                AssignmentValue::Scalar(word) => {
                    let value = self.word(word, script)?;
                    if value.is_fixed {
                        // Arithmetic runs the commands in the value of a variable.
                        no_substitution(&value.text)?;
                    }
                }
                AssignmentValue::Compound(array) => {
                    for element in &array.elements {
                        self.word(&element.value().word, script)?;
                        if !matches!(element, ArrayElem::Sequential(_)) {
                            no_substitution(array.span.slice(script.source))?;
                        }
                    }
                }
            }
            names.push(assignment.target.name.to_string());
        }
        Ok(names)
    }

    fn set(&mut self, names: &[String]) {
        let new: Vec<_> = names.iter().filter(|name| !self.variables.contains(name)).cloned().collect();
        if !new.is_empty() {
            self.variables = self.variables.iter().cloned().chain(new).collect();
        }
    }

    /// Adds a command.
    pub fn add(&mut self, words: Vec<ShellWord>, role: CommandRole, context: &CommandContext) -> Result<(), Unclear> {
        if self.line.commands.len() >= COMMAND_LIMIT {
            return Err(Unclear(format!("the line has more than {COMMAND_LIMIT} commands")));
        }
        self.line.commands.push(ShellCommand {
            words,
            role,
            variables: context.variables.clone(),
            pipeline: context.pipeline,
            position: context.position,
            dirs: self.dirs.clone(),
        });
        Ok(())
    }

    /// Records a change of the directory. `None`: only the run decides about the target.
    pub fn change_dir(&mut self, target: Option<&str>) {
        self.dirs.change(target);
    }

    /// Records that the variables of a command stay set.
    pub fn keep_variables(&mut self, names: &[String]) {
        self.set(names);
    }
}

/// Returns true for the number of a descriptor, and for `-`, which closes one.
fn is_descriptor(word: &ShellWord) -> bool {
    word.value().is_some_and(|text| {
        let digits = text.strip_suffix('-').unwrap_or(text);
        text == "-" || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Returns true for devices that keep nothing.
fn is_null_device(word: &ShellWord) -> bool {
    matches!(word.value(), Some("/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/stdin" | "/dev/tty"))
}
