//! Reading one variable at a time, and collecting what is wrong. Nothing here knows what a variable means.

use std::str::FromStr;
use std::time::Duration;

use super::VARIABLES;

/// Where variables come from.
pub trait Environment {
    /// The value of a variable; an empty one counts as unset.
    fn get(&self, name: &str) -> Option<String>;
}

impl<F: Fn(&str) -> Option<String>> Environment for F {
    fn get(&self, name: &str) -> Option<String> {
        self(name)
    }
}

pub(super) struct Reader<'a> {
    environment: &'a dyn Environment,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(environment: &'a dyn Environment) -> Reader<'a> {
        Reader { environment, problems: Vec::new() }
    }

    pub(super) fn problem(&mut self, name: &str, what: &str) {
        self.problems.push(format!("{name} {what}"));
    }

    pub(super) fn problems(self) -> Vec<String> {
        self.problems
    }

    pub(super) fn problems_or(self, otherwise: &str) -> Vec<String> {
        if self.problems.is_empty() { vec![otherwise.to_owned()] } else { self.problems }
    }

    pub(super) fn text(&mut self, name: &'static str) -> String {
        let Some(variable) = VARIABLES.iter().find(|variable| variable.name == name) else {
            self.problem(name, "is not a known variable");
            return String::new();
        };
        match (self.environment.get(name).filter(|value| !value.is_empty()), variable.default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.to_owned(),
            (None, None) => {
                self.problem(name, &format!("must be set: {}", variable.meaning));
                String::new()
            }
        }
    }

    /// The value is never quoted in a problem: it may hold a password.
    pub(super) fn url(&mut self, name: &'static str, schemes: &[&str]) -> String {
        let text = self.text(name);
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        if !text.is_empty() && !scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
            self.problem(name, &format!("must begin with {}", schemes.map_join("://, ")));
        }
        text
    }

    pub(super) fn number<T: FromStr + PartialOrd + std::fmt::Display + Copy>(
        &mut self,
        name: &'static str,
        least: T,
        most: T,
    ) -> T {
        let text = self.text(name);
        match text.parse::<T>() {
            Ok(number) if number >= least && number <= most => number,
            _ => {
                self.problem(name, &format!("must be a whole number from {least} to {most}, not {text:?}"));
                least
            }
        }
    }

    pub(super) fn factor(&mut self, name: &'static str, least: f64, most: f64) -> f64 {
        let text = self.text(name);
        match text.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.problem(name, &format!("must be a number from {least} to {most}, not {text:?}"));
                least
            }
        }
    }

    pub(super) fn duration(&mut self, name: &'static str, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(self.number(name, least_ms, most_ms))
    }

    pub(super) fn boolean(&mut self, name: &'static str) -> bool {
        match self.text(name).as_str() {
            "true" | "1" | "yes" => true,
            "false" | "0" | "no" => false,
            other => {
                let what = format!("must be true or false, not {other:?}");
                self.problem(name, &what);
                false
            }
        }
    }
}

trait MapJoin {
    fn map_join(&self, separator: &str) -> String;
}

impl MapJoin for [&str] {
    fn map_join(&self, separator: &str) -> String {
        format!("{}://", self.join(separator))
    }
}
