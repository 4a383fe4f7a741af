use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::{
    config::{Config, SandboxLimits, SandboxVolume},
    sandbox::RunDir,
};

fn policy() -> ContainerPolicy {
    let config = SandboxConfig { readonly_root: true, ..Config::with_data_dir("/x").sandbox };
    ContainerPolicy { node: "node-1".into(), config: Arc::new(config), selinux: false }
}

fn spec() -> SandboxSpec {
    let session: SessionId = "01J00000000000000000000000".parse().expect("id is valid");
    SandboxSpec {
        session,
        image: "debian:bookworm".into(),
        run: RunDir::of(Path::new("/data/run"), session),
        agent: "/data/bin/agent".into(),
        workspace: "/data/work".into(),
        home: "/data/home".into(),
        volumes: vec![SandboxVolume {
            host: "/srv/sets".into(),
            inside: "/sets".into(),
            access: VolumeAccess::ReadOnly,
        }],
        uid: 1000,
        gid: 1001,
        limits: SandboxLimits { memory: bytesize::ByteSize::gib(2), cpus: 1.5, pids: 512 },
        network: SandboxNetwork::None,
    }
}

fn json(spec: &SandboxSpec) -> Value {
    sorted(serde_json::to_value(create_body(&policy(), spec).expect("spec is valid")).expect("body serializes"))
}

#[test]
fn body_matches_golden() {
    let mut body = json(&spec());
    let profile = body["HostConfig"]["SecurityOpt"][1].take();
    assert_eq!(profile, format!("seccomp={}", *PROFILE));
    assert_eq!(format!("{body:#}"), GOLDEN);
}

#[test]
fn profile_denies_by_call_and_by_argument() {
    let profile: Value = serde_json::from_str(&PROFILE).expect("the profile is JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ALLOW");
    let rules = profile["syscalls"].as_array().expect("the profile has rules");
    let rules_of = |name: &str| rules.iter().filter(|rule| rule["names"][0] == name).collect::<Vec<_>>();
    let [io_uring] = rules_of("io_uring_setup")[..] else { panic!("one rule") };
    assert_eq!((&io_uring["errnoRet"], &io_uring["args"]), (&1.into(), &Value::Array(Vec::new())));
    assert_eq!(rules_of("clone3")[0]["errnoRet"], 38);
    let sockets = rules_of("socket");
    assert!(
        sockets.len() > 10 && sockets.iter().all(|rule| rule["args"].as_array().is_some_and(|args| args.len() == 1))
    );
}

#[test]
fn volume_replaces_the_names_of_users() {
    let targets = |inside: &str| {
        let volume = SandboxVolume { host: "/srv".into(), inside: inside.into(), access: VolumeAccess::ReadOnly };
        mounts(&SandboxSpec { volumes: vec![volume], ..spec() }).into_iter().filter_map(|mount| mount.target)
    };
    assert_eq!(targets("/etc/passwd").filter(|target| target == "/etc/passwd").count(), 1);
    assert!(!targets("/etc").any(|target| target == "/etc/passwd" || target == "/etc/group"));
}

#[test]
fn engine_with_selinux_may_write_in_proc() {
    let selinux = ContainerPolicy { selinux: true, ..policy() };
    assert_eq!(read_only_paths(&selinux), ["/proc/bus", "/proc/irq", "/proc/sys"]);
}

proptest! {
    #[test]
    fn image_changes_only_the_image_field(image in any::<String>()) {
        let mut plain = json(&spec());
        plain["Image"] = image.clone().into();
        prop_assert_eq!(json(&SandboxSpec { image, ..spec() }), plain);
    }
}

#[test]
fn spec_without_isolation_is_rejected() {
    for network in ["host", "container:other", "ns:/proc/1/ns/net", ""] {
        let spec = SandboxSpec { network: SandboxNetwork::Named(network.into()), ..spec() };
        assert!(create_body(&policy(), &spec).is_err(), "{network}");
    }
    assert!(create_body(&policy(), &SandboxSpec { uid: 0, ..spec() }).is_err());
    let named = SandboxSpec { network: SandboxNetwork::Named("fenced".into()), ..spec() };
    assert_eq!(json(&named)["HostConfig"]["NetworkMode"], "fenced");
}

#[test]
fn fingerprint_covers_all_but_the_image() {
    let label = |spec: &SandboxSpec| json(spec)["Labels"][FINGERPRINT_LABEL].clone();
    assert_eq!(
        label(&spec()),
        label(&SandboxSpec { image: "other".into(), ..spec() }),
        "the image is compared separately"
    );
    assert_ne!(label(&spec()), label(&SandboxSpec { agent: PathBuf::from("/data/bin/newer"), ..spec() }));
    assert_ne!(label(&spec()), label(&SandboxSpec { volumes: Vec::new(), ..spec() }));
    assert_ne!(label(&spec()), label(&SandboxSpec { network: SandboxNetwork::Named("fenced".into()), ..spec() }));
}

const GOLDEN: &str = r#"{
  "Entrypoint": [
    "/greenroom/bin/greenroom-agent"
  ],
  "Env": [
    "HOME=/home/agent",
    "USER=agent",
    "LOGNAME=agent",
    "LANG=C.UTF-8",
    "GREENROOM_SESSION=01J00000000000000000000000"
  ],
  "Healthcheck": {
    "Test": [
      "NONE"
    ]
  },
  "HostConfig": {
    "CapDrop": [
      "ALL"
    ],
    "CgroupnsMode": "private",
    "Init": true,
    "IpcMode": "private",
    "LogConfig": {
      "Config": {
        "max-file": "2",
        "max-size": "1m"
      },
      "Type": "json-file"
    },
    "MaskedPaths": [
      "/proc/acpi",
      "/proc/asound",
      "/proc/cmdline",
      "/proc/config.gz",
      "/proc/diskstats",
      "/proc/driver",
      "/proc/fs",
      "/proc/interrupts",
      "/proc/iomem",
      "/proc/ioports",
      "/proc/kallsyms",
      "/proc/kcore",
      "/proc/key-users",
      "/proc/keys",
      "/proc/kmsg",
      "/proc/latency_stats",
      "/proc/modules",
      "/proc/mtrr",
      "/proc/partitions",
      "/proc/sched_debug",
      "/proc/scsi",
      "/proc/sysrq-trigger",
      "/proc/timer_list",
      "/proc/timer_stats",
      "/proc/vmallocinfo",
      "/sys/devices/virtual/powercap",
      "/sys/firmware"
    ],
    "Memory": 2147483648,
    "MemorySwap": 2147483648,
    "Mounts": [
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": true,
        "Source": "/data/bin/agent",
        "Target": "/greenroom/bin/greenroom-agent",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": true,
        "Source": "/data/run/01J00000000000000000000000",
        "Target": "/greenroom/run",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": false,
        "Source": "/data/run/01J00000000000000000000000/agent",
        "Target": "/greenroom/run/agent",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": false,
        "Source": "/data/work",
        "Target": "/workspace",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": false,
        "Source": "/data/home",
        "Target": "/home/agent",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": true,
        "Source": "/data/run/01J00000000000000000000000/passwd",
        "Target": "/etc/passwd",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": true,
        "Source": "/data/run/01J00000000000000000000000/group",
        "Target": "/etc/group",
        "Type": "bind"
      },
      {
        "BindOptions": {
          "Propagation": "rprivate"
        },
        "ReadOnly": true,
        "Source": "/srv/sets",
        "Target": "/sets",
        "Type": "bind"
      }
    ],
    "NanoCpus": 1500000000,
    "NetworkMode": "none",
    "OomScoreAdj": 500,
    "PidsLimit": 512,
    "Privileged": false,
    "ReadonlyPaths": [
      "/proc"
    ],
    "ReadonlyRootfs": true,
    "SecurityOpt": [
      "no-new-privileges:true",
      null
    ],
    "ShmSize": 268435456,
    "Tmpfs": {
      "/tmp": "rw,exec,nosuid,nodev,mode=1777,uid=1000,gid=1001,size=1073741824"
    },
    "Ulimits": [
      {
        "Hard": 0,
        "Name": "core",
        "Soft": 0
      },
      {
        "Hard": 16384,
        "Name": "nofile",
        "Soft": 16384
      },
      {
        "Hard": 1024,
        "Name": "sigpending",
        "Soft": 1024
      },
      {
        "Hard": 102400,
        "Name": "msgqueue",
        "Soft": 102400
      }
    ]
  },
  "Hostname": "greenroom",
  "Image": "debian:bookworm",
  "Labels": {
    "greenroom.node": "node-1",
    "greenroom.session": "01J00000000000000000000000",
    "greenroom.wall": "59948065"
  },
  "StopSignal": "SIGTERM",
  "User": "1000:1001",
  "WorkingDir": "/workspace"
}"#;
