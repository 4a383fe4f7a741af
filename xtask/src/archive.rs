//! Archive for other machines: the program, its documents and the unit for systemd.
//!
//! `tests/it/packaging.rs` includes this file too, and packs the program under test.

use std::{fs, io, path::Path, process::Command};

/// Directory inside the archive.
pub(crate) const ARCHIVE_DIRECTORY: &str = "greenroom";
/// Files of the archive beside the program.
const ARCHIVE_FILES: [&str; 4] = ["LICENSE", "README.md", "config/default.toml", "packaging/greenroom.service"];
/// Newest version of glibc that a program may need: that of Debian 11.
const NEWEST_GLIBC: (u32, u32) = (2, 31);

/// Packs `program` into `archive`, a `.tar.gz`.
///
/// # Errors
/// A file is missing, or `tar` fails.
pub(crate) fn pack(program: &Path, root: &Path, archive: &Path) -> Result<(), String> {
    let staging = archive.with_extension("staging");
    let tree = staging.join(ARCHIVE_DIRECTORY);
    let fill = || -> io::Result<()> {
        if staging.exists() {
            fs::remove_dir_all(&staging)?;
        }
        fs::create_dir_all(&tree)?;
        fs::copy(program, tree.join("greenroom"))?;
        for file in ARCHIVE_FILES {
            let name = Path::new(file).file_name().unwrap_or_default();
            fs::copy(root.join(file), tree.join(name))?;
        }
        Ok(())
    };
    fill().map_err(|e| format!("`{}`: {e}", tree.display()))?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--numeric-owner", "--file"]).arg(archive);
    output(tar.arg("--directory").arg(&staging).arg(ARCHIVE_DIRECTORY))?;
    fs::remove_dir_all(&staging).map_err(|e| format!("`{}`: {e}", staging.display()))
}

/// Checks that the program starts on Debian 11 and later.
///
/// # Errors
/// The program needs a newer glibc, or `objdump` cannot read it.
pub(crate) fn check_glibc(program: &Path) -> Result<(), String> {
    // A static program has no dynamic symbols, which is no error of `objdump`.
    let symbols = output(Command::new("objdump").arg("--dynamic-syms").arg(program))?;
    match newest_glibc(&symbols) {
        Some((version, symbol)) if version > NEWEST_GLIBC => Err(format!(
            "`{}` needs glibc {}.{} for `{symbol}`, and Debian 11 has {}.{}; link it statically (`cargo xtask dist`) or \
             build it on Debian 11",
            program.display(),
            version.0,
            version.1,
            NEWEST_GLIBC.0,
            NEWEST_GLIBC.1
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the newest version of glibc in the output of `objdump --dynamic-syms`, with its symbol.
pub(crate) fn newest_glibc(symbols: &str) -> Option<((u32, u32), &str)> {
    let version_of = |line: &str| {
        let (_, version) = line.split_once("GLIBC_")?;
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let needed = symbols.lines().filter_map(|line| Some((version_of(line)?, line.split_whitespace().next_back()?)));
    needed.max_by_key(|(version, _)| *version)
}

/// Returns the program's output, or its errors if it fails.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("`{name}` cannot be started: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{name}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}
