//! The query of an address: its parameters by name, each at most once, and what is wrong with them.
//!
//! Which parameters an address takes is said where it is handled.

use std::collections::HashSet;

use super::error::InvalidMember;
use super::members::id_problem;

/// So many unknown parameters are named; an answer must not grow with the nonsense in its request.
const STRANGERS_MAX: usize = 20;

/// The parameters as they were sent, decoded.
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(super) fn parse(text: &str) -> Query {
        let pairs = url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        Query { pairs }
    }

    /// Every parameter that is not in `known`, each once.
    pub(super) fn strangers(&self, known: &[&str]) -> Vec<InvalidMember> {
        let mut problems = Vec::new();
        let mut seen = HashSet::new();
        for (name, _) in &self.pairs {
            if problems.len() < STRANGERS_MAX && !known.contains(&&**name) && seen.insert(name) {
                let rule = format!("is not a parameter of this address; it takes {}", known.join(", "));
                problems.push(problem(name, rule));
            }
        }
        problems
    }

    /// The value of a parameter; a problem when it is there twice.
    pub(super) fn single(&self, name: &str) -> Result<Option<&str>, InvalidMember> {
        let mut values = self.pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(problem(name, "must be given only once")),
            (value, None) => Ok(value),
        }
    }
}

/// A problem of the parameter `name`.
pub(super) fn problem(name: &str, rule: impl Into<String>) -> InvalidMember {
    let shown: String = name.chars().take(64).collect();
    InvalidMember::new(format!("query {shown}"), rule)
}

/// A parameter that follows the rules of an id.
pub(super) fn single_id(query: &Query, name: &str) -> Result<Option<String>, InvalidMember> {
    let Some(value) = query.single(name)? else { return Ok(None) };
    match id_problem(value) {
        Some(rule) => Err(problem(name, rule)),
        None => Ok(Some(value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_nobody_asked_for_is_named_once() {
        let query = Query::parse("a=1&b=2&b=3");
        let named: Vec<String> = query.strangers(&["a"]).into_iter().map(|problem| problem.path).collect();
        assert_eq!(named, ["query b"]);
    }

    #[test]
    fn a_repeated_parameter_is_a_problem() {
        let query = Query::parse("a=1&a=1&c=x%20y");
        assert!(query.single("a").is_err());
        assert_eq!(query.single("b").expect("absent"), None);
        assert_eq!(query.single("c").expect("once"), Some("x y"));
    }

    #[test]
    fn ids_in_a_query_follow_the_rules_of_ids_in_a_body() {
        assert!(single_id(&Query::parse("user_id="), "user_id").is_err());
        assert!(single_id(&Query::parse("user_id=%00"), "user_id").is_err());
        assert_eq!(single_id(&Query::parse("user_id=u1"), "user_id").expect("sound"), Some("u1".to_owned()));
    }
}
