use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::{
    config::{Config, SandboxLimits, SandboxVolume},
    sandbox::RunDir,
};

fn policy() -> ContainerPolicy {
    let config = SandboxConfig { readonly_root: true, ..Config::with_data_dir("/x").sandbox };
    ContainerPolicy { node: "node-1".into(), config: Arc::new(config) }
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
    assert_eq!(format!("{:#}", json(&spec())), GOLDEN);
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
        "Source": "/srv/sets",
        "Target": "/sets",
        "Type": "bind"
      }
    ],
    "NanoCpus": 1500000000,
    "NetworkMode": "none",
    "PidsLimit": 512,
    "Privileged": false,
    "ReadonlyRootfs": true,
    "SecurityOpt": [
      "no-new-privileges:true"
    ],
    "ShmSize": 268435456,
    "Tmpfs": {
      "/tmp": "rw,exec,nosuid,nodev,mode=1777,uid=1000,gid=1001,size=1073741824"
    }
  },
  "Hostname": "greenroom",
  "Image": "debian:bookworm",
  "Labels": {
    "greenroom.node": "node-1",
    "greenroom.session": "01J00000000000000000000000",
    "greenroom.wall": "f376e592"
  },
  "StopSignal": "SIGTERM",
  "User": "1000:1001",
  "WorkingDir": "/workspace"
}"#;
