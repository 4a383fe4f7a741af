use super::*;

const WORKSPACE: &str = "/workspace";

/// Returns the commands of a line, each as its words joined by `|`. Open words begin with `?`.
fn commands(line: &str) -> Result<Vec<String>, Unclear> {
    let shown = |word: &ShellWord| if word.is_fixed { word.text.clone() } else { format!("?{}", word.text) };
    let parsed = parse(line, WORKSPACE)?;
    Ok(parsed.commands.iter().map(|command| command.words.iter().map(shown).collect::<Vec<_>>().join("|")).collect())
}

#[test]
fn lines_are_taken_apart() {
    let check = |line: &str, expected: &[&str]| {
        assert_eq!(
            commands(line).as_deref(),
            Ok(&expected.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>()[..]),
            "{line}"
        );
    };
    check("", &[]);
    check("# only a comment", &[]);
    check("a && b || c; d & e | f |& g", &["a", "b", "c", "d", "e", "f", "g"]);
    check("X=1 a $Y \"$Z\" *.rs {a,b} ~/x", &["a|?$Y|?\"$Z\"|?*.rs|?{a,b}|~/x"]);
    check("echo a\\ b 'c \"d' \"e\\\"f \\x\" $'g\\x41' h\\\ni", &["echo|a b|c \"d|e\"f \\x|gA|hi"]);
    check("echo \"$(a 'b c')\" `d e`", &["a|b c", "d|e", "echo|?\"$(a 'b c')\"|?`d e`"]);
    check("echo $(a \\b \"c\\\\d\")", &["a|b|c\\d", "echo|?$(a \\b \"c\\\\d\")"]);
    check("diff <(a) >(b)", &["a", "b", "diff|?<(a)|?>(b)"]);
    check("f() { a; }; f", &["a", "f"]);
    check("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]);
    check("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]);
    check("for x in $(a) b; do c $x; done", &["a", "c|?$x"]);
    check("case $(a) in x) b;; *) c;; esac", &["a", "b", "c"]);
    check("(a; (b)); { c; }", &["a", "b", "c"]);
    check("[[ -n $(a) && x == $(b) ]]", &["a", "b"]);
    check("echo $(( $(a) + 1 )) ${x:-$(b)}", &["a", "b", "echo|?$(( $(a) + 1 ))|?${x:-$(b)}"]);
    check("cat <<E\n$(a) `b`\nE\n", &["a", "b", "cat"]);
    check("cat <<'E'\n$(a)\nE\n", &["cat"]);
    check("bash <<'E'\na\nb c\nE\n", &["bash", "a", "b|c"]);
    check("sh -c 'a && b' x y", &["sh|-c|a && b|x|y", "a", "b"]);
    check("bash -xeuo pipefail -c 'a'", &["bash|-xeuo|pipefail|-c|a", "a"]);
    check("bash script.sh", &["bash|script.sh"]);
    check("env -i A=1 B=2 a b", &["env|-i|A=1|B=2|a|b", "a|b"]);
    check("sudo -u root -E a b", &["sudo|-u|root|-E|a|b", "a|b"]);
    check("timeout -s KILL 5s nice -n 10 a", &["timeout|-s|KILL|5s|nice|-n|10|a", "nice|-n|10|a", "a"]);
    check("a | xargs -0 -n 1 b c", &["a", "xargs|-0|-n|1|b|c", "b|c|?…"]);
    check("find . -exec a {} + -o -exec b \\;", &["find|.|-exec|a|{}|+|-o|-exec|b|;", "a|?{}", "b"]);
    check("trap 'a b' EXIT", &["trap|a b|EXIT", "a|b"]);
    check("command -v a", &["command|-v|a"]);
    check("eval a 'b; c'", &["eval|a|b; c", "a|b", "c"]);
    check("[ -f x ] && a", &["[|-f|x|]", "a"]);
    check("A=1 B=$(a)", &["a"]);
    check("export A=$(a)", &["a"]);
    check("x=(1 $(a))", &["a"]);
}

#[test]
fn lines_that_hide_a_command_are_unclear() {
    let check = |line: &str, reason: &str| match commands(line) {
        Err(Unclear(found)) => assert!(found.contains(reason), "{line}: {found}"),
        Ok(commands) => panic!("{line}: {commands:?}"),
    };
    check("echo 'a", "cannot be parsed");
    check("if a; then", "cannot be parsed");
    check("a )", "cannot be parsed");
    check("$X a", "only the run decides which command");
    check("a*", "only the run decides which command");
    check("{a,b}", "only the run decides which command");
    check("\"$(a)\"", "only the run decides which command");
    check("sh -c \"$X\"", "only the run decides");
    check("eval \"$X\"", "only the run decides");
    check("curl x | sh", "runs what a pipe brings");
    check("curl x | sudo bash -s", "runs what a pipe brings");
    check("bash <(a)", "only the run decides");
    check("bash <<< $X", "only the run decides");
    check("bash <<E\n$X\nE\n", "only the run decides");
    check("source <(a)", "only the run decides");
    check("bash /dev/stdin", "only the run decides");
    check("zsh -c a", "a syntax of its own");
    check("timeout --unknown 5 a", "hides which command");
    check("sudo -Q a", "hides which command");
    check("env -S 'a b'", "hides which command");
    check("alias ls=rm", "changes the meaning");
    check("echo `a \\`b\\``", "substitution has escapes");
    check("x='a[$(b)]'; echo $((x))", "substitution");
    check("[[ -z $(case x in x) a;; esac) ]]", "cannot be parsed");
    check("! ! a", "a word of the shell's syntax");
    check("let 'a[$(b)]'", "evaluates a text");
    check("echo ${x@P}", "runs the text of a variable");
    check("gіt push", "look-alike");
    check("ls\rrm", "control character");
    check("größe x", "letters beyond ASCII");
    check(&"a; ".repeat(1500), "");
    check(&format!("echo {}", "x".repeat(LINE_LIMIT)), "more than 65536 bytes");
    check(&"eval ".repeat(30), "nested too deep");
    check(&format!("{}a{}", "$(".repeat(100), ")".repeat(100)), "");
    check(&"{a,".repeat(2000), "too many substitutions");
}

#[test]
fn redirections_name_files() {
    let files = |line: &str| {
        let parsed = parse(line, WORKSPACE).expect(line);
        parsed
            .files
            .iter()
            .map(|file| format!("{}{}", if file.writes { '>' } else { '<' }, file.path.text))
            .collect::<Vec<_>>()
    };
    assert_eq!(files("a > x 2>> y < z &> w >| v <> u"), [">x", ">y", "<z", ">w", ">v", ">u"]);
    assert_eq!(files("a > /dev/null 2>&1 1>&- < /dev/null"), Vec::<String>::new());
    assert_eq!(files("a >& x; { b; } > y; (c) > z; if d; then e; fi > w"), [">x", ">y", ">z", ">w"]);
    assert_eq!(files("a > $X"), [">$X"]);
    assert_eq!(files("sh -c 'a > x'; echo $(b > y); c | d > z"), [">x", ">y", ">z"]);
}

#[test]
fn changes_of_the_directory_are_followed() {
    let places = |line: &str| {
        let parsed = parse(line, WORKSPACE).expect(line);
        let file = parsed.files.last().expect("the line has a redirection");
        file.dirs.places(&file.path.text).iter().map(|place| place.text().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(places("a > x"), ["x"]);
    assert_eq!(places("cd /etc && a > x"), ["/etc/x", "x"]);
    assert_eq!(places("cd sub; a > ../x"), ["/x", "x"]);
    assert_eq!(places("cd $D; a > x"), ["x", "x"]);
}

/// Words without expansions have the value that bash gives them.
#[test]
fn fixed_words_have_the_value_of_bash() {
    let lines = [
        r#"a\ b 'c d' "e\$f" g\\h "i\\j" 'k\l' "m\n" \n \'x\' "it's" 'say "x"'"#,
        r#"$'a\tb' $'\x41\u00e9' $'it\'s' a"b"'c'd "" '' x''y"#,
        r##"a#b 'a#b' "a;b" a\;b a\&\&b '|' '`' '$(x)' "\`" "a\
b" c\
d"##,
        r#"--opt="a b" -x=y @:,.%+/ ü "ü é" '日本'"#,
        r#"\* '*' "?" \[a] "{a,b}" \{a,b\} '~' \~"#,
        r#"a$ "b$" $'c$' "d\e" e\ "#,
    ];
    for line in lines {
        let output = std::process::Command::new("bash").args(["-c", &format!("printf '%s\\0' {line}")]).output();
        let output = output.expect("bash is installed").stdout;
        let text = String::from_utf8(output).expect("the words are UTF-8");
        let expected: Vec<&str> = text.strip_suffix('\0').unwrap_or(&text).split('\0').collect();
        let parsed = parse(&format!("printf x {line}"), WORKSPACE).unwrap_or_else(|e| panic!("{line}: {e:?}"));
        let words: Vec<&str> = parsed.commands[0].words[2..].iter().map(|word| word.value().unwrap_or("?")).collect();
        assert_eq!(words, expected, "{line}");
    }
}
