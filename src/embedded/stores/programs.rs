//! Finds the installed programs and wraps them so that they end with their owner and never run as root.
//! Not a process: nothing is started here.

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
    process::Command,
};

use super::StoreError;

/// Where Debian keeps the server programs of each PostgreSQL version, outside PATH.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Who runs the servers when the owner is root: PostgreSQL refuses to run as root. The first that exists is taken.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

/// The user that the servers run as, if it is another one than the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// `None` when the owner is not root: then the servers run as the owner.
    pub(super) fn for_servers() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        ACCOUNTS.iter().find_map(|name| Self::named(name, &accounts))
    }

    fn named(name: &str, accounts: &str) -> Option<Self> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            Some(Self { user: fields.nth(1)?.parse().ok()?, group: fields.next()?.parse().ok()? })
        })
    }
}

/// The directory that holds both `initdb` and `postgres`: in PATH, else Debian's newest.
pub(super) fn postgres_directory() -> Result<PathBuf, StoreError> {
    path_directories()
        .chain(debian_postgres())
        .find(|directory| has_all(directory, &["initdb", "postgres"]))
        .ok_or_else(|| StoreError::NotInstalled {
            program: "a PostgreSQL server (initdb, postgres)",
            package: "postgresql",
            searched: format!("PATH and {POSTGRES_VERSIONS}/*/bin"),
        })
}

/// The path of a program that PATH must have.
pub(super) fn program_in_path(program: &'static str, package: &'static str) -> Result<PathBuf, StoreError> {
    path_directories()
        .find(|directory| has_all(directory, &[program]))
        .map(|directory| directory.join(program))
        .ok_or_else(|| StoreError::NotInstalled { program, package, searched: "PATH".to_owned() })
}

/// A command that runs `program` as `account`, which the kernel sends the signal `at_death` (named as `kill -l` does) when the *thread* that spawned
/// it ends. The environment is emptied: variables such as PGPORT or PGOPTIONS would reach into the private server.
pub(super) fn private_command(program: &Path, account: Option<Account>, at_death: &str) -> Result<Command, StoreError> {
    let mut command = Command::new(program_in_path("setpriv", "util-linux")?);
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C.UTF-8");
    command.arg(format!("--pdeathsig={at_death}"));
    if let Some(Account { user, group }) = account {
        command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
    }
    command.arg("--").arg(program);
    Ok(command)
}

fn path_directories() -> impl Iterator<Item = PathBuf> {
    // sbin is not in every user's PATH.
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.into_iter().chain(iter::once(PathBuf::from("/usr/sbin")))
}

fn debian_postgres() -> impl Iterator<Item = PathBuf> {
    let mut versions: Vec<u32> = fs::read_dir(POSTGRES_VERSIONS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    versions.into_iter().map(|version| Path::new(POSTGRES_VERSIONS).join(version.to_string()).join("bin"))
}

fn has_all(directory: &Path, programs: &[&str]) -> bool {
    programs.iter().all(|program| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: &str = "root:x:0:0:root:/root:/bin/bash\npostgres2:x:7:8::/:/bin/sh\nnobody:x:65534:65533:nobody:/nonexistent:/bin/false\n";

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        assert_eq!(Account::named("nobody", ACCOUNTS), Some(Account { user: 65534, group: 65533 }));
        assert_eq!(Account::named("postgres", ACCOUNTS), None);
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = program_in_path("judge-relay-no-such-program", "some-package").unwrap_err().to_string();
        assert!(
            error.contains("judge-relay-no-such-program") && error.contains("apt-get install some-package"),
            "{error}"
        );
    }
}
