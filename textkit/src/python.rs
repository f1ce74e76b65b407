//! Template values written the way Python writes them: json.dumps, str of floats, strftime.

use crate::plain::is_reserved;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// How json.dumps lays a value out.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

const MAX_DEPTH: usize = 128;

pub fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    JsonWriter { style, out: &mut out }.value(value, 0)?;
    Ok(out)
}

struct JsonWriter<'a> {
    style: &'a JsonStyle,
    out: &'a mut String,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            _ if crate::compat::is_list(value) => self.sequence(value, depth)?,
            ValueKind::Map => self.mapping(value, depth)?,
            ValueKind::Undefined => {
                return Err(invalid("Object of type Undefined is not JSON serializable"))
            }
            ValueKind::Iterable => {
                return Err(invalid("Object of type generator is not JSON serializable"))
            }
            other => {
                return Err(invalid(format!("Object of type {other} is not JSON serializable")))
            }
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut is_first = true;
        self.out.push('[');
        for item in value.try_iter()? {
            self.before_item(&mut is_first, depth + 1);
            self.value(&item, depth + 1)?;
        }
        self.close(']', is_first, depth);
        Ok(())
    }

    fn mapping(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        let mut is_first = true;
        self.out.push('{');
        for key in keys {
            self.before_item(&mut is_first, depth + 1);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::Number => self.string(&number(&key)),
                ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
                ValueKind::None => self.string("null"),
                other => {
                    return Err(invalid(format!(
                        "keys must be str, int, float, bool or None, not {other}"
                    )))
                }
            }
            self.out.push_str(&self.style.key_separator);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.close('}', is_first, depth);
        Ok(())
    }

    fn before_item(&mut self, is_first: &mut bool, depth: usize) {
        if !std::mem::replace(is_first, false) {
            self.out.push_str(&self.style.item_separator);
        }
        self.new_line(depth);
    }

    fn close(&mut self, bracket: char, is_empty: bool, depth: usize) {
        if !is_empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.style.ensure_ascii && !c.is_ascii() && !is_reserved(c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => "NaN".into(),
        Ok(number) if number.is_infinite() => {
            if number > 0.0 { "Infinity" } else { "-Infinity" }.into()
        }
        Ok(number) => float(number),
        Err(_) => value.to_string(),
    }
}

/// The shortest digits that read back as the same float, as Python lays them out.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = number.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// A local time, "2026-01-02T03:04:05".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Time {
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once('T')?;
        let numbers = |text: &str, by: char| -> Option<Vec<i64>> {
            text.split(by).map(|part| part.parse().ok()).collect()
        };
        let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
        let (&[year, month, day], &[hour, minute, second]) = (date.as_slice(), time.as_slice())
        else {
            return None;
        };
        let in_range = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..61).contains(&second);
        in_range.then_some(Self { year, month, day, hour, minute, second })
    }

    /// Days since 1970-01-01 in the Gregorian calendar.
    fn days(&self) -> i64 {
        let before_march = self.month <= 2;
        let year = if before_march { self.year - 1 } else { self.year };
        let month = if before_march { self.month + 9 } else { self.month - 3 };
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
    }

    fn weekday(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    fn day_of_year(&self) -> i64 {
        self.days() - Time { month: 1, day: 1, ..*self }.days() + 1
    }

    /// ISO 8601 week: (year, week).
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.weekday() + 6) % 7;
        let thursday = self.day_of_year() - monday_based + 3;
        let length = |year: i64| {
            Time { year: year + 1, month: 1, day: 1, ..*self }.days()
                - Time { year, month: 1, day: 1, ..*self }.days()
        };
        if thursday < 1 {
            (self.year - 1, (thursday + length(self.year - 1) - 1) / 7 + 1)
        } else if thursday > length(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, (thursday - 1) / 7 + 1)
        }
    }

    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::new();
        let mut rest = format.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let no_padding = rest.next_if_eq(&'-').is_some();
            match rest.next() {
                Some(directive) => self.directive(directive, no_padding, &mut out),
                None => out.push_str(if no_padding { "%-" } else { "%" }),
            }
        }
        out
    }

    fn directive(&self, directive: char, no_padding: bool, out: &mut String) {
        let month = MONTHS[(self.month - 1) as usize];
        let weekday = self.weekday();
        let day = DAYS[weekday as usize];
        let hour12 = (self.hour + 11) % 12 + 1;
        let mut padded = |value: i64, width: usize, fill: char| {
            let _ = match (no_padding, fill) {
                (true, _) => write!(out, "{value}"),
                (false, '0') => write!(out, "{value:0width$}"),
                (false, _) => write!(out, "{value:width$}"),
            };
        };
        match directive {
            'Y' => padded(self.year, 4, '0'),
            'C' => padded(self.year / 100, 2, '0'),
            'y' => padded(self.year % 100, 2, '0'),
            'm' => padded(self.month, 2, '0'),
            'd' => padded(self.day, 2, '0'),
            'e' => padded(self.day, 2, ' '),
            'H' => padded(self.hour, 2, '0'),
            'k' => padded(self.hour, 2, ' '),
            'I' => padded(hour12, 2, '0'),
            'l' => padded(hour12, 2, ' '),
            'M' => padded(self.minute, 2, '0'),
            'S' => padded(self.second, 2, '0'),
            'j' => padded(self.day_of_year(), 3, '0'),
            'f' => out.push_str("000000"),
            'u' => padded((weekday + 6) % 7 + 1, 1, '0'),
            'w' => padded(weekday, 1, '0'),
            'U' => padded((self.day_of_year() + 6 - weekday) / 7, 2, '0'),
            'W' => padded((self.day_of_year() + 6 - (weekday + 6) % 7) / 7, 2, '0'),
            'G' => padded(self.iso_week().0, 4, '0'),
            'V' => padded(self.iso_week().1, 2, '0'),
            's' => padded(
                self.days() * 86_400 + self.hour * 3_600 + self.minute * 60 + self.second,
                1,
                '0',
            ),
            'B' => out.push_str(month),
            'b' | 'h' => out.push_str(&month[..3]),
            'A' => out.push_str(day),
            'a' => out.push_str(&day[..3]),
            'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'F' => out.push_str(&self.strftime("%Y-%m-%d")),
            'T' | 'X' => out.push_str(&self.strftime("%H:%M:%S")),
            'D' | 'x' => out.push_str(&self.strftime("%m/%d/%y")),
            'R' => out.push_str(&self.strftime("%H:%M")),
            'r' => out.push_str(&self.strftime("%I:%M:%S %p")),
            'c' => out.push_str(&self.strftime("%a %b %e %H:%M:%S %Y")),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            // A time without a zone prints none.
            'z' | 'Z' => {}
            other => {
                out.push('%');
                out.push(other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ];
        for (number, text) in cases {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn time_formats() {
        let time = Time::parse("2026-01-02T03:04:05").expect("valid");
        assert_eq!(time.strftime("%d %b %Y"), "02 Jan 2026");
        assert_eq!(
            time.strftime("%A %-d %B, %I:%M %p %j %U %W %V %G %u %w"),
            "Friday 2 January, 03:04 AM 002 00 00 01 2026 5 5"
        );
        assert_eq!(time.strftime("%F %T %% %Q %"), "2026-01-02 03:04:05 % %Q %");
        assert_eq!(time.strftime("%s"), "1767323045");
        assert!(Time::parse("2026-13-02T03:04:05").is_none());
        assert!(Time::parse("yesterday").is_none());
    }
}
