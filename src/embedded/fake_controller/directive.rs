//! What a source tells the fake to find, in a comment of the form `verdict: WORD, WORD, …`; everything else is chance.
//!
//! Words, separated by commas, up to the end of the line:
//! * a verdict as judge-relay writes it (`wrong_answer`), or shortened: `ac wa pe tle mle ole re ce`;
//! * `system_error`, `system_compile_error`: the judge itself fails; `unjudged`: it judges nothing;
//! * `case 3`: only the third case is like that, the cases before it are accepted;
//! * `slow 3s`, `slow 250ms`: judging takes so much longer;
//! * `never`: no finish ever.
//!
//! For example `// verdict: wrong_answer, case 2, slow 3s`. Unknown words say nothing.

use std::time::Duration;

use crate::protocol::Verdict;

/// What the judge finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    Verdict(Verdict),
    /// The judger failed.
    SystemError,
    /// The judger's own program (checker or interactor) does not compile.
    SystemCompileError,
    /// The judger reports that it judged nothing.
    Unjudged,
}

/// What a source asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Directive {
    /// None: chance decides.
    pub(super) ruling: Option<Ruling>,
    /// Counted from 1; none: every case.
    pub(super) case: Option<usize>,
    pub(super) slow: Duration,
    pub(super) never: bool,
}

/// Reads the first directive of a source.
pub(super) fn parse(source: &str) -> Directive {
    let mut directive = Directive::default();
    let Some(start) = source.find("verdict:") else { return directive };
    let line = source[start + "verdict:".len()..].lines().next().unwrap_or_default();
    let line = line.trim_end_matches(['*', '/', '-', '>', ' ']);
    for word in line.split(',') {
        directive.note(word.trim());
    }
    directive
}

impl Directive {
    fn note(&mut self, word: &str) {
        match word.split_once(' ') {
            Some(("case", number)) => self.case = number.trim().parse().ok().filter(|number| *number > 0),
            Some(("slow", span)) => self.slow = duration(span.trim()).unwrap_or_default(),
            Some(_) => {}
            None if word == "never" => self.never = true,
            None => self.ruling = ruling(word).or(self.ruling),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    if let Some(milliseconds) = text.strip_suffix("ms") {
        return milliseconds.parse().ok().map(Duration::from_millis);
    }
    text.strip_suffix('s')?.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn ruling(word: &str) -> Option<Ruling> {
    let verdict = match word {
        "system_error" => return Some(Ruling::SystemError),
        "system_compile_error" => return Some(Ruling::SystemCompileError),
        "unjudged" => return Some(Ruling::Unjudged),
        "ac" => Verdict::Accepted,
        "wa" => Verdict::WrongAnswer,
        "pe" => Verdict::PresentationError,
        "tle" => Verdict::TimeLimitExceeded,
        "mle" => Verdict::MemoryLimitExceeded,
        "ole" => Verdict::OutputLimitExceeded,
        "re" => Verdict::RuntimeError,
        "ce" => Verdict::CompileError,
        _ => return word.parse().ok().map(Ruling::Verdict),
    };
    Some(Ruling::Verdict(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_says_what_is_found_where_and_when() {
        let directive = parse("int main(){} /* verdict: wrong_answer, case 2, slow 1.5s */\n");
        assert_eq!(directive.ruling, Some(Ruling::Verdict(Verdict::WrongAnswer)));
        assert_eq!(directive.case, Some(2));
        assert_eq!(directive.slow, Duration::from_millis(1500));
        assert!(!directive.never);
    }

    #[test]
    fn short_words_and_the_judges_own_failures_are_known() {
        assert_eq!(parse("# verdict: tle").ruling, Some(Ruling::Verdict(Verdict::TimeLimitExceeded)));
        assert_eq!(parse("# verdict: compile_error").ruling, Some(Ruling::Verdict(Verdict::CompileError)));
        assert_eq!(parse("# verdict: system_error\n# verdict: ac").ruling, Some(Ruling::SystemError));
        assert!(parse("// verdict: never").never);
    }

    #[test]
    fn a_source_without_a_directive_leaves_it_to_chance() {
        assert_eq!(parse("int main(){return 0;}"), Directive::default());
        assert_eq!(parse("// verdict: something else"), Directive::default());
    }
}
