//! What templates compute with: filters, methods and functions that are charged for, and the checks of operators.

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters, functions};

use super::meter::{Meter, VALUE_BYTES};
use super::methods;

/// What a filter or method looks through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// The elements of its arguments, but not what they hold.
    Elements,
    /// Its arguments with all that they hold.
    Everything,
}

/// Replaces the filters and functions that can make or look through much by ones that are charged for, and adds the checks
/// that [`compile`](super::compile) calls. `tojson` is the caller's.
pub(super) fn install(environment: &mut Environment<'_>) {
    // These only make long texts, or show the inside of a run.
    for filter in ["batch", "format", "indent", "pprint", "slice", "tojson", "urlencode"] {
        environment.remove_filter(filter);
    }
    environment.remove_global("debug");
    for (name, cost, filter) in filters() {
        environment.add_filter(name, move |state: &State<'_, '_>, mut args: Rest<Value>| {
            let meter = Meter::of(state);
            if let Some(first) = args.first_mut().filter(|value| value.is_undefined()) {
                *first = in_place_of_undefined(name);
            }
            charge(&meter, name, cost, &args)?;
            if name == "join" {
                args[0] = written(&meter, &args[0])?;
            }
            finish(&meter, filter.call(state, &args)?)
        });
    }
    for (name, function) in [
        ("dict", Value::from_function(functions::dict)),
        ("namespace", Value::from_function(functions::namespace)),
    ] {
        environment.add_function(name, move |state: &State<'_, '_>, args: Rest<Value>| {
            let meter = Meter::of(state);
            charge(&meter, name, Cost::Everything, &args)?;
            let made = function.call(state, &args)?;
            meter.charge_nodes(&made)?;
            Ok::<_, Error>(made)
        });
    }
    environment.add_filter("string", |state: &State<'_, '_>, value: Value| text(&Meter::of(state), &value));
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| match value.is_undefined() {
            true => Ok(0),
            false => filters::length(value),
        });
    }
    environment.add_filter("indent", |state: &State<'_, '_>, args: Rest<Value>| match args.split_first() {
        Some((text, args)) => methods::indent(state, text, args),
        None => Err(Error::from(ErrorKind::MissingArgument)),
    });
    environment.add_filter("first", |value: &Value| match value.is_undefined() {
        true => Ok(Value::UNDEFINED),
        false => filters::first(value),
    });
    environment.add_filter("int", methods::int);
    environment.add_test("callable", methods::is_callable);
    environment.add_test("sequence", methods::is_sequence);
    environment.add_test("iterable", methods::is_iterable);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, state, value| Meter::of(state).write_text(value, out));

    add_check(environment, "!add", |meter, operands| match operands {
        [a, b] if a.as_str().is_some() && b.as_str().is_some() => texts(meter, operands),
        _ => elements(meter, operands),
    });
    add_check(environment, "!mul", |meter, operands| {
        let times = operands.iter().find_map(Value::as_usize).unwrap_or(0);
        let of = |value: &Value| match value.as_str() {
            Some(text) => text.len().saturating_mul(times),
            None => value.len().unwrap_or(0).saturating_mul(times).saturating_mul(VALUE_BYTES),
        };
        operands.iter().try_for_each(|value| meter.charge(of(value)))
    });
    add_check(environment, "!slice", |meter, operands| {
        texts(meter, operands)?;
        elements(meter, operands)
    });
    environment.add_filter("!concat", |state: &State<'_, '_>, operands: Rest<Value>| {
        let meter = Meter::of(state);
        let texts: Result<Vec<Value>, Error> =
            operands.iter().rev().map(|value| text(&meter, value)).collect();
        texts.map(Value::from)
    });
    add_check(environment, "!compare", |meter, operands| {
        operands.iter().try_for_each(|value| meter.charge_tree(value))
    });
    add_check(environment, "!store", |meter, operands| meter.require_no_namespace(&operands[0]));
    add_check(environment, "!items", elements);

    add_result(environment, "!materialize", finish);
    add_result(environment, "!built", |meter, value| meter.charge_nodes(&value).map(|()| value));
    add_result(environment, "!loop", |meter, value| {
        // The keys of a dictionary are copied, and the text of a string may be.
        let bytes = value.as_str().map_or(0, str::len);
        let keys = if value.kind() == ValueKind::Map { value.len().unwrap_or(0) } else { 0 };
        meter.charge(bytes)?;
        meter.charge_values(keys).map(|()| value)
    });
    add_result(environment, "!refused", |_, _| {
        Err(Error::new(ErrorKind::InvalidOperation, "too many arguments"))
    });
}

/// Adds the filter that checks the operands of an instruction and gives them back in a list, the first one last.
fn add_check(
    environment: &mut Environment<'_>,
    name: &'static str,
    check: fn(&Meter, &[Value]) -> Result<(), Error>,
) {
    environment.add_filter(name, move |state: &State<'_, '_>, operands: Rest<Value>| {
        check(&Meter::of(state), &operands)?;
        // `UnpackList` puts the first element on top of the stack.
        Ok::<_, Error>(Value::from(operands.iter().rev().cloned().collect::<Vec<_>>()))
    });
}

/// Adds the filter that looks at what an instruction has made or is about to take.
fn add_result(
    environment: &mut Environment<'_>,
    name: &'static str,
    check: fn(&Meter, Value) -> Result<Value, Error>,
) {
    environment.add_filter(name, move |state: &State<'_, '_>, value: Value| check(&Meter::of(state), value));
}

/// The filters that are charged for. Those that are not here take and make one number, or give back what they were given.
fn filters() -> Vec<(&'static str, Cost, Value)> {
    use Cost::{Elements, Everything};
    vec![
        ("capitalize", Everything, Value::from_function(filters::capitalize)),
        ("chain", Elements, Value::from_function(filters::chain)),
        ("dictsort", Everything, Value::from_function(filters::dictsort)),
        ("e", Everything, Value::from_function(filters::escape)),
        ("escape", Everything, Value::from_function(filters::escape)),
        ("groupby", Everything, Value::from_function(filters::groupby)),
        ("items", Elements, Value::from_function(filters::items)),
        ("join", Everything, Value::from_function(filters::join)),
        ("last", Elements, Value::from_function(filters::last)),
        ("lines", Everything, Value::from_function(filters::lines)),
        ("list", Elements, Value::from_function(filters::list)),
        ("lower", Everything, Value::from_function(filters::lower)),
        ("map", Elements, Value::from_function(filters::map)),
        ("max", Everything, Value::from_function(filters::max)),
        ("min", Everything, Value::from_function(filters::min)),
        ("reject", Elements, Value::from_function(filters::reject)),
        ("rejectattr", Elements, Value::from_function(filters::rejectattr)),
        ("replace", Everything, Value::from_function(filters::replace)),
        ("reverse", Everything, Value::from_function(filters::reverse)),
        ("safe", Everything, Value::from_function(filters::safe)),
        ("select", Elements, Value::from_function(filters::select)),
        ("selectattr", Elements, Value::from_function(filters::selectattr)),
        ("sort", Everything, Value::from_function(filters::sort)),
        ("split", Everything, Value::from_function(filters::split)),
        ("sum", Everything, Value::from_function(filters::sum)),
        ("title", Everything, Value::from_function(filters::title)),
        ("trim", Everything, Value::from_function(filters::trim)),
        ("unique", Everything, Value::from_function(filters::unique)),
        ("upper", Everything, Value::from_function(filters::upper)),
        ("zip", Elements, Value::from_function(filters::zip)),
    ]
}

/// What a filter takes an undefined value for: an empty list, dictionary or text, as Jinja2's undefined value is each of
/// them.
fn in_place_of_undefined(filter: &str) -> Value {
    match filter {
        "capitalize" | "e" | "escape" | "lines" | "lower" | "replace" | "safe" | "split" | "title"
        | "trim" | "upper" => Value::from(""),
        "items" => Value::from_iter(std::iter::empty::<(&str, Value)>()),
        "dictsort" => Value::UNDEFINED,
        _ => Value::from(Vec::<Value>::new()),
    }
}

/// The value as a text, written as Python writes it.
fn text(meter: &Meter, value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        meter.charge(text.len())?;
        return Ok(value.clone());
    }
    let mut text = String::new();
    meter.write_text(value, &mut text)?;
    Ok(Value::from(text))
}

/// The list with its elements as texts.
fn written(meter: &Meter, list: &Value) -> Result<Value, Error> {
    if list.as_str().is_some() || !matches!(list.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Ok(list.clone());
    }
    let texts: Result<Vec<Value>, Error> = list.try_iter()?.map(|item| text(meter, &item)).collect();
    texts.map(Value::from)
}

/// Charges for what the filter or method called `name` will look through and make of its arguments.
pub(super) fn charge(meter: &Meter, name: &str, cost: Cost, args: &[Value]) -> Result<(), Error> {
    match cost {
        Cost::Elements => elements(meter, args)?,
        Cost::Everything => args.iter().try_for_each(|value| meter.charge_tree(value))?,
    }
    let text = |at: usize| args.get(at).and_then(Value::as_str);
    match name {
        "replace" => {
            let (Some(whole), Some(old), Some(new)) = (text(0), text(1), text(2)) else { return Ok(()) };
            meter.charge(whole.matches(old).count().saturating_mul(new.len()))
        }
        "join" => {
            let separator = text(1).map_or(0, str::len);
            meter.charge(args.first().and_then(Value::len).unwrap_or(0).saturating_mul(separator))
        }
        "split" | "rsplit" => {
            let Some(whole) = text(0) else { return Ok(()) };
            let pieces = match text(1) {
                Some(separator) => whole.matches(separator).count() + 1,
                None => whole.split_whitespace().count(),
            };
            meter.charge_values(pieces)
        }
        "lines" | "splitlines" => meter.charge_values(text(0).map_or(0, |whole| whole.lines().count())),
        _ => Ok(()),
    }
}

/// Charges for a result. What would be computed when it is used is computed now, so that nothing can be put off
/// uncharged.
pub(super) fn finish(meter: &Meter, value: Value) -> Result<Value, Error> {
    let value = if value.kind() == ValueKind::Iterable {
        let mut items = Vec::new();
        for item in value.try_iter()? {
            meter.charge_values(1)?;
            items.push(item);
        }
        Value::from(items)
    } else {
        value
    };
    if let Some(text) = value.as_str() {
        meter.charge(text.len())?;
    }
    meter.charge_nodes(&value)?;
    Ok(value)
}

/// Charges for the elements of lists and dictionaries, not for what they hold.
fn elements(meter: &Meter, values: &[Value]) -> Result<(), Error> {
    values.iter().filter(|value| value.as_str().is_none()).try_for_each(|value| {
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            return Ok(());
        }
        match value.len() {
            Some(n) => meter.charge_values(n),
            None => value.try_iter()?.try_for_each(|_| meter.charge_values(1)),
        }
    })
}

/// Charges for the texts among values.
fn texts(meter: &Meter, values: &[Value]) -> Result<(), Error> {
    values.iter().filter_map(Value::as_str).try_for_each(|text| meter.charge(text.len()))
}
