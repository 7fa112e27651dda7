//! The layout rules: what may be used where, how long things may be, what every actor's file must say.
//! Not style: rustfmt and clippy have that.
#![allow(clippy::panic, clippy::expect_used, reason = "all of it is tests")]

use std::fs;
use std::path::Path;

const LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;

/// Files that may be longer, and why.
const LONG_FILES: &[(&str, &str)] = &[
    ("src/store/attempts.rs", "an attempt's whole life, beginning and end, is read together"),
    ("src/store/schema.rs", "generated"),
];

/// What may be named only in some places: the name, the places, what for.
const ONLY_IN: &[(&str, &[&str], &str)] = &[
    ("diesel::", &["src/store/"], "SQL is spoken in the store only"),
    ("diesel_async::", &["src/store/"], "SQL is spoken in the store only"),
    ("tokio_postgres::", &["src/store/pool.rs", "src/embedded/stores/"], "connections are made in one place"),
    // A module of the private stores is called redis, too.
    ("redis::", &["src/stream/", "src/embedded/stores/"], "Redis is spoken in the streams only"),
    ("bb8_redis::", &["src/stream/"], "Redis is spoken in the streams only"),
    ("awc::", &["src/controller.rs", "src/controller/"], "the controller is called in one place"),
];

/// What decisions must be free of.
const IMPURE: &[&str] =
    &["async ", "await", "tokio::", "actix::", "actix_rt::", "rand::", "Utc::now", "Instant::now", "SystemTime::now"];

/// Files of `src/actors` that are no actors themselves.
const NO_ACTORS: &[&str] =
    &["src/actors/mod.rs", "src/actors/judge_dispatcher/intake.rs", "src/actors/judge_dispatcher/sending.rs"];

const HEADER: [&str; 5] = ["//! Boundary: ", "//! Takes: ", "//! Leaves: ", "//! If it dies here: ", "//! Poison: "];

/// Path from the root of the repository, and text, of every Rust file under `directory`.
fn sources(directory: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut directories = vec![root.join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("under the root").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("a readable file")));
            }
        }
    }
    found.sort();
    found
}

/// The lines that are code: no comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Is `name` used in the line as a whole word, not as the end of a longer one or of another path?
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | ':' | '"'))
    })
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn each_store_and_the_controller_is_spoken_to_in_one_place_only() {
    let mut problems = Vec::new();
    for (path, text) in sources("src") {
        for (name, places, reason) in ONLY_IN {
            if places.iter().any(|place| path.starts_with(place)) {
                continue;
            }
            let used = code(&text).filter(|(_, line)| names(line, name));
            problems.extend(used.map(|(number, _)| format!("{path}:{number}: {name} {reason}")));
        }
    }
    assert_none(&problems);
}

#[test]
fn decisions_are_pure() {
    let mut problems = Vec::new();
    for (path, text) in sources("src/protocol") {
        for name in IMPURE {
            // Their own tests, at the end of the file, may look at a clock.
            let decisions = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let used = code(decisions).filter(|(_, line)| names(line, name));
            problems.extend(used.map(|(number, _)| format!("{path}:{number}: no {name} where it is decided")));
        }
    }
    assert_none(&problems);
}

#[test]
fn every_module_says_what_it_is() {
    let sources = sources("src");
    assert!(sources.len() > 20, "the sources were not found");
    let silent = sources.iter().filter(|(_, text)| !text.starts_with("//! "));
    assert_none(&silent.map(|(path, _)| format!("{path} does not begin with //!")).collect::<Vec<_>>());
}

#[test]
fn files_are_short() {
    let mut problems = Vec::new();
    for (path, text) in sources("src").into_iter().chain(sources("tests")) {
        let lines = text.lines().count();
        let is_excused = LONG_FILES.iter().any(|(file, _)| *file == path);
        if lines > LINES_MAX && !is_excused {
            problems.push(format!("{path} has {lines} lines"));
        }
    }
    assert_none(&problems);
}

/// Name and length of every function: from the line of `fn` to the line that closes it at the same depth.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let depth = line.len() - line.trim_start().len();
        let starts = [
            "fn ",
            "pub fn ",
            "async fn ",
            "pub async fn ",
            "pub(super) fn ",
            "pub(super) async fn ",
            "const fn ",
            "pub const fn ",
            "pub(crate) fn ",
            "pub(crate) async fn ",
        ];
        if starts.iter().any(|start| line.trim_start().starts_with(start)) && !line.ends_with([';', '}']) {
            open.push((number, depth));
        } else if line.trim_start() == "}" && open.last().is_some_and(|(_, start)| *start == depth) {
            found.extend(open.pop().map(|(start, _)| (start, number + 1 - start)));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut problems = Vec::new();
    let mut count = 0;
    for (path, text) in sources("src").into_iter().chain(sources("tests")) {
        for (line, length) in functions(&text) {
            count += 1;
            if length > FUNCTION_LINES_MAX {
                problems.push(format!("{path}:{line} is {length} lines long"));
            }
        }
    }
    assert!(count > 500, "only {count} functions were found");
    assert_none(&problems);
}

#[test]
fn every_actor_says_what_happens_when_it_dies_and_has_its_place_in_the_book() {
    let book = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("actors.md")).ok();
    let headings: Vec<&str> = book.iter().flat_map(|book| book.lines()).filter(|line| line.starts_with('#')).collect();
    let mut problems = Vec::new();
    let mut actors = Vec::new();
    for (path, text) in sources("src/actors") {
        if NO_ACTORS.contains(&&*path) {
            continue;
        }
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let missing = HEADER.iter().filter(|start| header.iter().filter(|line| line.starts_with(**start)).count() != 1);
        problems.extend(missing.map(|start| format!("{path} has no single line \"{start}…\"")));
        let name = text.strip_prefix("//! ").and_then(|text| text.split_once(':')).map_or("", |(name, _)| name);
        let file = path.trim_start_matches("src/actors/").trim_end_matches(".rs").trim_end_matches("/mod");
        if name.to_lowercase() != file.replace('_', "") {
            problems.push(format!("{path} begins with the name {name:?}"));
        }
        actors.push(name.to_owned());
    }
    if book.is_some() {
        let is_told = |actor: &&String| headings.iter().any(|heading| heading.contains(&***actor));
        problems.extend(
            actors.iter().filter(|actor| !is_told(actor)).map(|actor| format!("actors.md has no heading of {actor}")),
        );
        // A heading that is one word in camel case names an actor.
        let words = headings.iter().map(|heading| heading.trim_start_matches(['#', ' ', '`']).trim_end_matches('`'));
        let unknown = words.filter(|word| {
            let capitals = word.chars().filter(|character| character.is_uppercase()).count();
            word.chars().all(char::is_alphanumeric) && capitals > 1 && !actors.iter().any(|actor| actor == word)
        });
        problems.extend(unknown.map(|word| format!("actors.md tells of {word}, which has no file in src/actors")));
    }
    assert_none(&problems);
}

#[test]
fn the_rules_find_what_they_are_for() {
    assert!(names("use diesel::prelude::*;", "diesel::") && names("    awc::Client::new()", "awc::"));
    assert!(!names("use self::redis::PrivateRedis;", "redis::") && !names("bb8_redis::x", "redis::"));
    assert_eq!(
        functions("fn one() {\n}\nfn short() {}\nimpl X {\n    pub async fn two(\n    ) {\n    }\n}\n"),
        [(1, 2), (5, 3)]
    );
    assert_eq!(code("// diesel::\nlet x = 1;\n").collect::<Vec<_>>(), [(2, "let x = 1;")]);
}
