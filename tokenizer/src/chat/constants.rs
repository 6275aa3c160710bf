//! Refuses templates that would take too much stack or memory before they run.

use minijinja::machinery::ast::{BinOp, BinOpKind, Call, CallArg, Expr, Stmt};
use minijinja::machinery::{Token, WhitespaceConfig, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

use super::MAX_CONSTANT_BYTES;

/// The most operators in one statement. The parser limits brackets, but a chain such as `1 + 1 + 1` is as deep.
const MAX_OPERATORS: usize = 300;

/// The most branches of one template that begin with `elif`, each of which is a level deeper.
const MAX_BRANCHES: usize = 300;

fn refused(what: String) -> Error {
    Error::new(ErrorKind::SyntaxError, what)
}

/// Refuses statements so long that the parser or the compiler, which call themselves for every level, could overflow the
/// stack. What is wrong with the tokens themselves is left to the parser.
pub(super) fn check_nesting(source: &str, name: &str) -> Result<(), Error> {
    let whitespace = WhitespaceConfig::default();
    let (mut operators, mut branches) = (0, 0);
    for token in tokenize(source, false, SyntaxConfig, whitespace) {
        let Ok((token, span)) = token else { return Ok(()) };
        match token {
            Token::VariableStart | Token::BlockStart => operators = 0,
            Token::Ident("elif") => branches += 1,
            Token::Ident("and" | "or" | "not" | "is" | "in" | "if" | "else") => operators += 1,
            Token::Ident(_)
            | Token::TemplateData(_)
            | Token::VariableEnd
            | Token::BlockEnd
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_)
            | Token::Comma
            | Token::Colon
            | Token::Assign
            | Token::BracketClose
            | Token::ParenClose
            | Token::BraceClose => {}
            _ => operators += 1,
        }
        let line = span.start_line;
        if operators > MAX_OPERATORS {
            return Err(refused(format!(
                "a statement of more than {MAX_OPERATORS} operators (in {name}:{line})"
            )));
        }
        if branches > MAX_BRANCHES {
            return Err(refused(format!("more than {MAX_BRANCHES} branches of elif (in {name}:{line})")));
        }
    }
    Ok(())
}

/// Refuses constant expressions that multiply texts or lists to more than [`MAX_CONSTANT_BYTES`] in all, since the
/// compiler computes them. Other operators on constants give no more than the source has.
pub(super) fn check(template: &Stmt<'_>) -> Result<(), Error> {
    Constants { left: MAX_CONSTANT_BYTES }.statement(template)
}

struct Constants {
    left: usize,
}

impl Constants {
    fn statements(&mut self, statements: &[Stmt<'_>]) -> Result<(), Error> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Result<(), Error> {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
            Stmt::ForLoop(for_loop) => {
                self.expression(&for_loop.target)?;
                self.expression(&for_loop.iter)?;
                self.expressions(&for_loop.filter_expr)?;
                self.statements(&for_loop.body)?;
                self.statements(&for_loop.else_body)
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr)?;
                self.statements(&condition.true_body)?;
                self.statements(&condition.false_body)
            }
            Stmt::WithBlock(with) => {
                for (target, value) in &with.assignments {
                    self.expression(target)?;
                    self.expression(value)?;
                }
                self.statements(&with.body)
            }
            Stmt::Set(set) => {
                self.expression(&set.target)?;
                self.expression(&set.expr)
            }
            Stmt::SetBlock(set) => {
                self.expression(&set.target)?;
                self.expressions(&set.filter)?;
                self.statements(&set.body)
            }
            Stmt::AutoEscape(escape) => {
                self.expression(&escape.enabled)?;
                self.statements(&escape.body)
            }
            Stmt::FilterBlock(filter) => {
                self.expression(&filter.filter)?;
                self.statements(&filter.body)
            }
            Stmt::Block(block) => self.statements(&block.body),
            Stmt::Import(import) => {
                self.expression(&import.expr)?;
                self.expression(&import.name)
            }
            Stmt::FromImport(import) => {
                self.expression(&import.expr)?;
                for (name, alias) in &import.names {
                    self.expression(name)?;
                    self.expressions(alias)?;
                }
                Ok(())
            }
            Stmt::Extends(extends) => self.expression(&extends.name),
            Stmt::Include(include) => self.expression(&include.name),
            Stmt::Macro(declared) => {
                self.expressions(&declared.args)?;
                self.expressions(&declared.defaults)?;
                self.statements(&declared.body)
            }
            Stmt::CallBlock(block) => {
                self.call(&block.call)?;
                self.expressions(&block.macro_decl.args)?;
                self.expressions(&block.macro_decl.defaults)?;
                self.statements(&block.macro_decl.body)
            }
            Stmt::Do(statement) => self.call(&statement.call),
        }
    }

    fn expressions<'e, 's: 'e>(
        &mut self,
        expressions: impl IntoIterator<Item = &'e Expr<'s>>,
    ) -> Result<(), Error> {
        expressions.into_iter().try_for_each(|expression| self.expression(expression))
    }

    fn expression(&mut self, expression: &Expr<'_>) -> Result<(), Error> {
        match expression {
            Expr::Var(_) | Expr::Const(_) => Ok(()),
            Expr::Slice(slice) => {
                self.expression(&slice.expr)?;
                self.expressions(slice.start.iter().chain(&slice.stop).chain(&slice.step))
            }
            Expr::UnaryOp(operator) => self.expression(&operator.expr),
            Expr::BinOp(operator) => {
                self.expression(&operator.left)?;
                self.expression(&operator.right)?;
                self.product(operator)
            }
            Expr::Compare(compare) => {
                self.expression(&compare.expr)?;
                compare.ops.iter().try_for_each(|operator| self.expression(&operator.expr))
            }
            Expr::IfExpr(condition) => {
                self.expression(&condition.test_expr)?;
                self.expression(&condition.true_expr)?;
                self.expressions(&condition.false_expr)
            }
            Expr::Filter(filter) => {
                self.expressions(&filter.expr)?;
                self.arguments(&filter.args)
            }
            Expr::Test(test) => {
                self.expression(&test.expr)?;
                self.arguments(&test.args)
            }
            Expr::GetAttr(attribute) => self.expression(&attribute.expr),
            Expr::GetItem(item) => {
                self.expression(&item.expr)?;
                self.expression(&item.subscript_expr)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.expressions(&list.items),
            Expr::Map(map) => self.expressions(map.keys.iter().chain(&map.values)),
        }
    }

    fn call(&mut self, call: &Call<'_>) -> Result<(), Error> {
        self.expression(&call.expr)?;
        self.arguments(&call.args)
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Result<(), Error> {
        arguments.iter().try_for_each(|argument| match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => self.expression(value),
        })
    }

    /// An operator whose operands have been checked.
    fn product(&mut self, operator: &BinOp<'_>) -> Result<(), Error> {
        if !matches!(operator.op, BinOpKind::Mul) {
            return Ok(());
        }
        let (Some(left), Some(right)) = (operator.left.as_const(), operator.right.as_const()) else {
            return Ok(());
        };
        let (text, times) = match (left.as_usize(), right.as_usize()) {
            // The product of two numbers is a number.
            (Some(_), Some(_)) | (None, None) => return Ok(()),
            (Some(times), None) => (right, times),
            (None, Some(times)) => (left, times),
        };
        let bytes = text.to_string().len().saturating_mul(times);
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                let limit = MAX_CONSTANT_BYTES;
                return Err(refused(format!("constants of more than {limit} bytes made by *")));
            }
        }
        Ok(())
    }
}
