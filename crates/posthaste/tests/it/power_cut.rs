//! Power cuts: the file lies on an ext4 of its own, which is shut down under load without its log being written.
//!
//! What was in memory only is gone, as after a power cut. With `synchronous=full` nothing acknowledged may be missing
//! afterwards; with `normal` something must be, or the cut cuts nothing and the first half proves nothing.
//!
//! It needs root and loop devices. Where a mount is impossible the test says so, loudly, and passes; on a machine of ours
//! (`CI=true`) only a mount that was tried and refused, or not being root, is a reason. `POSTHASTE_POWER_CUTS` makes more cuts.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::kept::Kept;
use super::load::{Aim, Ledger, Load};
use super::program::{Home, json as read, post, sink};

/// How often the power is cut unless the variable says otherwise.
const CUTS: u32 = 3;
/// How many cuts may take nothing where they should.
const CANARY_CUTS: u32 = 5;
const MEBIBYTES: u64 = 128;
const PATHS: &[&str] = &["/ok", "/ok", "/flaky/20", "/delay/15ms"];

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`. Rust would need unsafe code for it; Perl is on every Debian.
const SHUT_DOWN: &str = r#"
    open(my $file, "<", $ARGV[0]) or die "$ARGV[0] cannot be opened: $!\n";
    my $flag = pack("L", 2);
    defined(ioctl($file, 0x8004587d, $flag)) or die "the ioctl is refused: $!\n";
"#;

/// An ext4 in a file, mounted. Dropping it takes it away again.
struct Disk {
    directory: TempDir,
    mounted: bool,
}

impl Disk {
    fn new() -> Result<Self, String> {
        let disk = Self { directory: tempfile::tempdir().unwrap(), mounted: false };
        std::fs::create_dir(disk.place()).unwrap();
        std::fs::File::create(disk.image()).unwrap().set_len(MEBIBYTES << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", path(&disk.image())])?;
        disk.mount()
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn mount(mut self) -> Result<Self, String> {
        run("mount", &["-o", "loop", path(&self.image()), path(&self.place())])?;
        self.mounted = true;
        Ok(self)
    }

    /// From here on nothing reaches the disk, and what had not is lost.
    fn cut(&self, file: &Path) {
        run("perl", &["-e", SHUT_DOWN, path(file)]).expect("an ext4 that could be mounted can be shut down");
    }

    /// As after the power is back: the journal of the file system is replayed.
    fn power_on(mut self) -> Self {
        run("umount", &[path(&self.place())]).expect("nobody uses the disk any more");
        self.mounted = false;
        self.mount().expect("what was mounted once can be mounted again")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily, because a test that fails may leave somebody on it.
            let _ = run("umount", &["-l", path(&self.place())]);
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let failed = |why: String| format!("{program} {}: {}", arguments.last().unwrap_or(&""), why.trim());
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program)
        .env("PATH", path)
        .args(arguments)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// A disk, or the reason why there can be none, said aloud. Where there could be one, on a machine of ours, it is a
/// mistake that there is none.
fn disk() -> Option<Disk> {
    let reason = match Disk::new() {
        Ok(disk) => return Some(disk),
        Err(reason) => reason,
    };
    let is_ours = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let may_mount = is_root() && !reason.starts_with("mount ");
    assert!(!(is_ours && may_mount), "install e2fsprogs, mount and perl: {reason}");
    // Past the test runner, which would keep it to itself.
    let _ = writeln!(io::stderr(), "\n!!! power cut: not possible here: {reason}\n");
    None
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

#[tokio::test]
async fn a_program_whose_disk_is_gone_acknowledges_nothing_more() {
    let Some(disk) = disk() else { return };
    let home = Home::new(&[]).with_file(disk.place().join("posthaste.db"));
    let mut program = home.start().await;
    let sink = sink().await;
    let body = json!({"channel": "webhook", "to": sink.url("/ok"), "body": 1});
    post(&program.client(), "/v1/notifications", &body).await;
    disk.cut(home.file());
    for _ in 0..20 {
        let answer = program.client().post("/v1/notifications", &body).await.unwrap();
        let problem = read(&answer, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(problem["code"], "STORE_UNAVAILABLE");
    }
    assert!(program.lives());
    program.kill();
    sink.stop().await;
}

/// Loads a program on a disk and cuts the power, `cuts` times; then lets everything end. Answers what was acknowledged
/// and what is kept.
async fn cut_again_and_again(disk: Disk, cuts: u32, settings: &[&str]) -> (Ledger, Kept) {
    let mut rng = Rng::new();
    let (mut disk, sink, mut ledger) = (disk, sink().await, Ledger::default());
    let home = Home::new(settings).with_file(disk.place().join("posthaste.db"));
    // The file is on the disk with everything that it needs before the first cut.
    home.start().await.stop().await;
    // Only this disk: a sync of all would save what another test is about to lose.
    run("sync", &["-f", path(&disk.place())]).unwrap();
    for _ in 0..cuts {
        let program = home.start().await;
        let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 100 }, &mut rng);
        sleep(Duration::from_millis(rng.u64(200..500))).await;
        // Without power no program runs: one that still did could acknowledge what an fsync under way at the moment of
        // the cut wrongly called done, as ext4 may for the transaction that it throws away.
        program.freeze().await;
        disk.cut(home.file());
        program.kill();
        ledger.add(load.ended().await);
        disk = disk.power_on();
    }
    let program = home.start().await;
    program.rest().await;
    program.stop().await;
    let kept = Kept::read(home.file());
    sink.stop().await;
    (ledger, kept)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_takes_nothing_that_was_acknowledged() {
    let Some(disk) = disk() else { return };
    let cuts = std::env::var("POSTHASTE_POWER_CUTS").map_or(CUTS, |cuts| cuts.parse().unwrap());
    let (ledger, kept) = cut_again_and_again(disk, cuts, &[]).await;
    eprintln!("power cut: {cuts} cuts, {} acknowledged, {} kept", ledger.acknowledged.len(), kept.all.len());
    assert!(ledger.acknowledged.len() > 50, "there was load: {}", ledger.acknowledged.len());
    kept.check(&ledger);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_does_take_what_was_acknowledged_without_waiting_for_the_disk() {
    let settings = ["store.synchronous=normal", "store.unsafe_durability=true"];
    let mut acknowledged = 0;
    // A checkpoint, or a sync by another program, may save everything just before a cut.
    for _ in 0..CANARY_CUTS {
        let Some(disk) = disk() else { return };
        let (ledger, kept) = cut_again_and_again(disk, 1, &settings).await;
        let lost = kept.missing(&ledger).len();
        eprintln!("power cut: synchronous=normal lost {lost} of {}", ledger.acknowledged.len());
        if lost > 0 {
            return;
        }
        acknowledged += ledger.acknowledged.len();
    }
    panic!("{CANARY_CUTS} cuts took nothing of {acknowledged}, so they are none");
}
