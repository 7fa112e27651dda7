//! The controller's own rules for a judge request, in its order, as tables and one walk over them.
//!
//! Faithful, not sensible: what the controller lets pass by mistake passes here too. Intake is stricter.

use super::super::json::{Problem, Value, push_member};
use super::urls::is_accepted_url;
use super::{NOT_NESTED, UNKNOWN_MEMBER, UNKNOWN_VALUE};

/// Are the callback URLs part of the body?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// As the controller receives it.
    Present,
    /// As we store it: the URLs differ for each attempt and are added when it is sent.
    Absent,
}

struct Member {
    name: &'static str,
    when: When,
    rules: &'static [Rule],
    nested: Option<&'static [Member]>,
}

/// When a member's rules count at all. Otherwise any value passes.
enum When {
    Always,
    /// Not when it is missing or null.
    Given,
    /// Only when the member `type` beside it says so.
    TypeIs(&'static str),
    Never,
}

/// One rule; the order in the tables is the order of the controller's messages.
enum Rule {
    Max(f64),
    Min(f64),
    Integer,
    Text,
    NotEmpty,
    OneOf(&'static [&'static str]),
    Url,
}

const fn member(name: &'static str, rules: &'static [Rule]) -> Member {
    Member { name, when: When::Always, rules, nested: None }
}

const fn member_when(name: &'static str, when: When, rules: &'static [Rule]) -> Member {
    Member { name, when, rules, nested: None }
}

const fn nested(name: &'static str, when: When, members: &'static [Member]) -> Member {
    Member { name, when, rules: REQUIRED, nested: Some(members) }
}

const REQUIRED: &[Rule] = &[Rule::NotEmpty];
const TEXT: &[Rule] = &[Rule::NotEmpty, Rule::Text];
const MEMORY: &[Rule] = &[Rule::Max(2_147_483_648.0), Rule::Min(4_194_304.0), Rule::Integer];
const CPU_TIME: &[Rule] = &[Rule::Max(60_000.0), Rule::Min(200.0), Rule::Integer];
const OUTPUT: &[Rule] = &[Rule::Max(134_217_728.0), Rule::Min(4_194_304.0), Rule::Integer];
const MESSAGE: &[Rule] = &[Rule::Max(102_400.0), Rule::Min(128.0), Rule::Integer];

static FILE: &[Member] = &[
    member_when("hashsum", When::Given, &[Rule::Text]),
    member("type", &[Rule::OneOf(&["url", "direct"])]),
    member_when("url", When::TypeIs("url"), &[Rule::Url]),
    member_when("content", When::TypeIs("direct"), &[Rule::Text]),
];

static DYNAMIC_FILE: &[Member] = &[
    member("type", &[Rule::OneOf(&["remote", "builtin"])]),
    nested("file", When::TypeIs("remote"), FILE),
    member("name", TEXT),
];

static ENVIRONMENT: &[Member] = &[
    member("language", TEXT),
    member("system", &[Rule::OneOf(&["Windows", "Linux", "Darwin"])]),
    member("arch", &[Rule::OneOf(&["x64", "arm", "risc-v", "powerpc", "mips"])]),
    member_when("options", When::Never, &[]),
];

static RUNTIME: &[Member] = &[member("memory", MEMORY), member("cpuTime", CPU_TIME), member("output", OUTPUT)];

static COMPILER: &[Member] =
    &[member("memory", MEMORY), member("cpuTime", CPU_TIME), member("output", OUTPUT), member("message", MESSAGE)];

static LIMIT: &[Member] = &[nested("runtime", When::Always, RUNTIME), nested("compiler", When::Always, COMPILER)];

static EXECUTABLE: &[Member] = &[
    nested("source", When::Always, FILE),
    nested("environment", When::Always, ENVIRONMENT),
    nested("limit", When::Always, LIMIT),
];

static JUDGE: &[Member] = &[
    member("type", &[Rule::OneOf(&["normal", "special", "interactive"])]),
    nested("user", When::Always, EXECUTABLE),
    nested("spj", When::TypeIs("special"), EXECUTABLE),
    nested("interactor", When::TypeIs("interactive"), EXECUTABLE),
];

static CASE: &[Member] = &[member("input", TEXT), member("output", TEXT)];

static TEST: &[Member] = &[nested("cases", When::Always, CASE), member("policy", &[Rule::OneOf(&["all", "fuse"])])];

static CALLBACK_URLS: &[Member] = &[member("update", &[Rule::Url]), member("finish", &[Rule::Url])];

/// The callback URLs stand last, so that the rules without them are the start of this table.
static REQUEST: &[Member] = &[
    Member { name: "data", when: When::Given, rules: &[], nested: Some(FILE) },
    Member { name: "dynamicFiles", when: When::Given, rules: &[], nested: Some(DYNAMIC_FILE) },
    nested("judge", When::Always, JUDGE),
    nested("test", When::Always, TEST),
    nested("callbackUrls", When::Always, CALLBACK_URLS),
];

/// Everything that the controller would refuse in a body, in the order in which it says so.
pub fn validate(body: &Value, callback_urls: Expected) -> Vec<Problem> {
    if body.as_object().is_none() {
        return vec![Problem::new("$", UNKNOWN_VALUE)];
    }
    let members = match callback_urls {
        Expected::Present => REQUEST,
        Expected::Absent => &REQUEST[..REQUEST.len() - 1],
    };
    let mut walk = Walk { path: "$".to_owned(), problems: Vec::new() };
    walk.nested(body, members);
    walk.problems
}

struct Walk {
    path: String,
    problems: Vec<Problem>,
}

impl Walk {
    fn add(&mut self, rule: impl Into<String>) {
        self.problems.push(Problem::new(self.path.clone(), rule));
    }

    fn within(&mut self, step: impl FnOnce(&mut String), inner: impl FnOnce(&mut Walk)) {
        let end = self.path.len();
        step(&mut self.path);
        inner(self);
        self.path.truncate(end);
    }

    /// An object, or a list of such, to any depth of lists.
    fn nested(&mut self, value: &Value, members: &'static [Member]) {
        match value {
            Value::Object(object) => {
                for (key, _) in object.iter() {
                    let key = key.to_lossy();
                    if members.iter().all(|member| member.name != key) {
                        self.within(|path| push_member(path, &key), |walk| walk.add(UNKNOWN_MEMBER));
                    }
                }
                for member in members {
                    self.within(|path| push_member(path, member.name), |walk| walk.member(value, member));
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.within(|path| path.push_str(&format!("[{index}]")), |walk| walk.nested(item, members));
                }
            }
            _ => self.add(NOT_NESTED),
        }
    }

    fn member(&mut self, parent: &Value, member: &'static Member) {
        let value = parent.get(member.name);
        if !applies(&member.when, parent, value) {
            return;
        }
        let found_before = self.problems.len();
        if let (Some(value), Some(members)) = (value, member.nested) {
            self.nested(value, members);
        }
        let is_top = !self.path[2..].contains(['.', '[']);
        if is_top && self.problems.len() > found_before {
            // The controller keeps no message of a top member itself when there is one from inside.
            return;
        }
        for rule in member.rules {
            if !holds(rule, value) {
                self.add(sentence(rule));
            }
        }
    }
}

fn applies(when: &When, parent: &Value, value: Option<&Value>) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Given => !matches!(value, None | Some(Value::Null)),
        When::TypeIs(kind) => parent.get("type").and_then(Value::as_str) == Some(*kind),
    }
}

fn holds(rule: &Rule, value: Option<&Value>) -> bool {
    let number = value.and_then(Value::as_number).map(|number| number.as_f64());
    let text = value.and_then(Value::as_text);
    match rule {
        Rule::Max(limit) => number.is_some_and(|number| number <= *limit),
        Rule::Min(limit) => number.is_some_and(|number| number >= *limit),
        Rule::Integer => number.is_some_and(|number| number.is_finite() && number.fract() == 0.0),
        Rule::Text => text.is_some(),
        Rule::NotEmpty => !matches!(value, None | Some(Value::Null)) && !text.is_some_and(|text| text.is_empty()),
        Rule::OneOf(words) => text.and_then(|text| text.as_str()).is_some_and(|text| words.contains(&text)),
        Rule::Url => text.and_then(|text| text.as_str()).is_some_and(is_accepted_url),
    }
}

fn sentence(rule: &Rule) -> String {
    match rule {
        Rule::Max(limit) => format!("must not be greater than {limit}"),
        Rule::Min(limit) => format!("must not be less than {limit}"),
        Rule::Integer => "must be an integer number".to_owned(),
        Rule::Text => "must be a string".to_owned(),
        Rule::NotEmpty => "should not be empty".to_owned(),
        Rule::OneOf(words) => format!("must be one of the following values: {}", words.join(", ")),
        Rule::Url => "must be an URL address".to_owned(),
    }
}
