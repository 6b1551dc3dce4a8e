//! Counts the tests that ran against a real `llama-server`.
//!
//! By convention they are integration tests in files `tests/real_*.rs` of any crate. A test that needs the
//! real engine fails without it and is never skipped, so CI fails too when such a file reported nothing, when
//! one of its tests was ignored or filtered out, and when there is no such file at all.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::workspace::Workspace;

/// What one test binary reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The file's name: `real_*.rs`.
    pub file: String,
    /// Tests that passed.
    pub passed: usize,
    /// Tests that were ignored or filtered out.
    pub skipped: usize,
}

/// The real-engine test files of the workspace at `root`.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let workspace = Workspace::read(root)?;
    let targets = workspace.packages.into_iter().flat_map(|package| package.targets);
    let paths =
        targets.filter(cargo_metadata::Target::is_test).map(|target| target.src_path.into_std_path_buf());
    Ok(paths.filter(|path| is_real(&file_name(path))).collect())
}

/// Reads the reports of real-engine tests out of what `cargo test` printed.
pub fn count(printed: &str) -> Vec<Ran> {
    let mut tally = Vec::new();
    let mut current = None;
    for line in printed.lines().map(str::trim) {
        if line.starts_with("Running ") || line.starts_with("Doc-tests ") {
            current = line.strip_prefix("Running ").and_then(running_file).filter(|file| is_real(file));
        } else if let Some(report) = line.strip_prefix("test result: ok. ")
            && let Some(file) = current.take()
        {
            let skipped = number(report, "ignored") + number(report, "filtered out");
            tally.push(Ran { file, passed: number(report, "passed"), skipped });
        }
    }
    tally
}

/// Fails when a file of `expected` is missing from `tally`, or ran in part only, or nothing is expected.
pub fn verify(expected: &[PathBuf], tally: &[Ran]) -> Result<()> {
    ensure!(
        !expected.is_empty(),
        "0 real-engine tests ran: there is no tests/real_*.rs in any crate, and the main job has to be shown on a \
         real llama-server"
    );
    let mut reports = tally.to_vec();
    for path in expected {
        let file = file_name(path);
        let Some(index) = reports.iter().position(|ran| ran.file == file) else {
            bail!("the real-engine tests in {} did not run", path.display());
        };
        let ran = reports.swap_remove(index);
        ensure!(
            ran.passed > 0 && ran.skipped == 0,
            "of the real-engine tests in {file}, {} passed and {} were skipped",
            ran.passed,
            ran.skipped
        );
    }
    Ok(())
}

/// The number of tests that passed.
pub fn total(tally: &[Ran]) -> usize {
    tally.iter().map(|ran| ran.passed).sum()
}

fn is_real(file: &str) -> bool {
    file.starts_with("real_") && Path::new(file).extension().is_some_and(|extension| extension == "rs")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file's name in `tests/real_main.rs (target/debug/deps/real_main-0123)`.
fn running_file(line: &str) -> Option<String> {
    let path = line.split(" (").next()?;
    let name = path.strip_prefix("tests/").or_else(|| path.strip_prefix("tests\\"))?;
    Some(name.to_owned())
}

/// The number before `word` in `3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s`.
fn number(report: &str, word: &str) -> usize {
    let part = report.split("; ").find_map(|part| part.strip_suffix(word));
    part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "
     Running unittests src/lib.rs (target/debug/deps/gglib_runtime-1)
test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
     Running tests/fake.rs (target/debug/deps/fake-2)
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
     Running tests/real_main.rs (target/debug/deps/real_main-3)
running 3 tests
test kills_while_idle ... ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.50s
     Running tests/real_swap.rs (target/debug/deps/real_swap-4)
test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 9.50s
   Doc-tests gglib_core
test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    fn ran(file: &str, passed: usize, skipped: usize) -> Ran {
        Ran { file: file.to_owned(), passed, skipped }
    }

    fn verdict(expected: &[&str], tally: &[Ran]) -> String {
        let expected: Vec<_> = expected.iter().map(PathBuf::from).collect();
        verify(&expected, tally).map_or_else(|error| error.to_string(), |()| "passed".to_owned())
    }

    #[test]
    fn only_real_engine_binaries_are_counted() {
        assert_eq!(count(PRINTED), [ran("real_main.rs", 3, 0), ran("real_swap.rs", 1, 3)]);
        assert_eq!(total(&count(PRINTED)), 4);
    }

    #[test]
    fn every_file_has_to_report_and_in_full() {
        assert_eq!(verdict(&["a/tests/real_a.rs"], &[ran("real_a.rs", 2, 0)]), "passed");
        assert!(verdict(&[], &[]).starts_with("0 real-engine tests ran"));
        assert_eq!(verdict(&["a/real_a.rs"], &[]), "the real-engine tests in a/real_a.rs did not run");
        let skipped = "of the real-engine tests in real_a.rs, 1 passed and 1 were skipped";
        assert_eq!(verdict(&["a/real_a.rs"], &[ran("real_a.rs", 1, 1)]), skipped);
        let none = "of the real-engine tests in real_a.rs, 0 passed and 0 were skipped";
        assert_eq!(verdict(&["a/real_a.rs"], &[ran("real_a.rs", 0, 0)]), none);
    }

    #[test]
    fn files_of_one_name_in_two_crates_are_two_files() {
        let expected = ["a/tests/real_a.rs", "b/tests/real_a.rs"];
        assert!(verdict(&expected, &[ran("real_a.rs", 2, 0)]).contains("b/tests/real_a.rs did not run"));
        assert_eq!(verdict(&expected, &[ran("real_a.rs", 2, 0), ran("real_a.rs", 1, 0)]), "passed");
    }
}
