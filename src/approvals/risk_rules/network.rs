//! Commands and addresses of a network.

use std::net::IpAddr;

use greenroom_protocol::approval::RiskLevel;

use super::{RiskFindings, files};
use crate::approvals::{parts::CallPart, place::host_of, shell::ShellCommand};

/// Programs that speak to other machines.
const NETWORK_PROGRAMS: [&str; 20] = [
    "aria2c", "curl", "dig", "ftp", "http", "httpie", "lftp", "nc", "ncat", "netcat", "nmap", "nslookup", "rclone",
    "scp", "sftp", "socat", "ssh", "telnet", "wget", "xh",
];

/// Programs that open this machine to others.
const TUNNELS: [&str; 6] = ["bore", "cloudflared", "frpc", "localtunnel", "lt", "ngrok"];

/// Options through which a file leaves the machine.
const UPLOAD_OPTIONS: [&str; 8] =
    ["-T", "--upload-file", "-F", "--form", "--post-file", "--body-file", "--data-binary", "--data-urlencode"];

pub(super) fn assess(command: &ShellCommand, hosts: &[String], findings: &mut RiskFindings) {
    let name = command.name();
    let words: Vec<&str> = command.words[1..].iter().map(|word| word.text.as_str()).collect();
    if TUNNELS.contains(&name) {
        findings.high("opens a tunnel to this machine");
    }
    if is_network(command) {
        let is_local = !hosts.is_empty() && hosts.iter().all(|host| is_loopback(host));
        if !is_local {
            findings.medium(format!("reaches the network with `{name}`"));
        }
    }
    match name {
        "curl" | "wget" | "http" | "httpie" | "xh" => {
            let is_file = |value: &str| value.starts_with('@') || value.contains("=@") || value.contains("=<");
            let sends = words.windows(2).any(|pair| {
                let option = pair[0].split('=').next().unwrap_or_default();
                match option {
                    "-T" | "--upload-file" | "--post-file" | "--body-file" => true,
                    "-d" | "--data" | "-F" | "--form" | "--data-binary" | "--data-urlencode" => is_file(pair[1]),
                    _ => false,
                }
            });
            let joined = words.iter().any(|word| {
                UPLOAD_OPTIONS.iter().any(|option| {
                    word.strip_prefix(option).is_some_and(|rest| rest.starts_with("=@") || rest.starts_with('@'))
                }) || word.starts_with("-d@")
                    || word.starts_with("--data=@")
                    || word.starts_with("--post-file=")
            });
            if sends || joined {
                findings.high("sends a file to a server");
            }
        }
        "nc" | "ncat" | "netcat"
            if words.iter().any(|word| {
                word.starts_with('-') && (word.contains('e') || word.contains('c') || word.contains('l'))
            }) =>
        {
            findings.high("gives a shell or a port to another machine");
        }
        "socat"
            if words.iter().any(|word| {
                let word = word.to_ascii_lowercase();
                word.contains("exec:") || word.contains("system:") || word.contains("listen")
            }) =>
        {
            findings.high("gives a shell or a port to another machine");
        }
        "ssh"
            if words
                .iter()
                .any(|word| word.starts_with("-R") || word.starts_with("-D") || word.contains("ProxyCommand")) =>
        {
            findings.high("opens a tunnel to this machine");
        }
        "scp" | "rsync" | "rclone" | "sftp" if words.last().is_some_and(|target| is_remote(target)) => {
            findings.high("sends a file to a server");
        }
        "rsync" if words.iter().any(|word| is_remote(word)) => findings.medium("reaches the network with `rsync`"),
        "ssh-copy-id" => findings.high("gives access to another machine"),
        _ => {}
    }
}

fn is_network(command: &ShellCommand) -> bool {
    NETWORK_PROGRAMS.contains(&command.name())
}

/// Returns true for `host:path`.
fn is_remote(target: &str) -> bool {
    target.split_once(':').is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Adds a finding for the services of a cloud that hand out credentials.
pub(super) fn assess_host(host: &str, findings: &mut RiskFindings) {
    if matches!(
        host,
        "169.254.169.254" | "metadata.google.internal" | "100.100.100.200" | "[fd00:ec2::254]" | "169.254.170.2"
    ) {
        findings.high("asks the cloud for the credentials of this machine");
    }
}

/// Adds findings for an address that a tool fetches.
pub(super) fn assess_address(url: &str, findings: &mut RiskFindings) {
    let lower = url.trim().to_ascii_lowercase();
    if lower.starts_with("file:") {
        findings.medium("reads a file through an address");
    }
    if let Some(host) = host_of(url) {
        assess_host(&host, findings);
        if let Ok(IpAddr::V4(ip)) = host.parse::<IpAddr>()
            && ip.is_private()
        {
            findings.medium("reaches a machine of the private network");
        }
    }
}

/// Adds a finding if one line both touches secrets and reaches a network.
pub(super) fn find_leaks(parts: &[CallPart], findings: &mut RiskFindings) {
    let commands = || parts.iter().filter_map(CallPart::command);
    let reaches = commands().any(is_network)
        || parts.iter().any(|part| part.places.iter().any(|place| place.text().starts_with("/dev/tcp/")));
    let prints_environment = commands()
        .any(|command| matches!(command.name(), "printenv") || (command.name() == "env" && command.words.len() == 1));
    let has_secret = parts.iter().any(|part| part.places.iter().any(files::has_secret));
    if reaches && (has_secret || prints_environment) {
        findings.high("may send secrets to another machine");
    } else if prints_environment {
        findings.medium("prints the environment, which may hold secrets");
    }
    if parts.iter().any(|part| {
        part.places.iter().any(|place| place.text().starts_with("/dev/tcp/") || place.text().starts_with("/dev/udp/"))
    }) {
        findings.add(RiskLevel::High, "gives a shell or a port to another machine");
    }
}
