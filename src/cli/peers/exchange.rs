//! How the ranks of one node tell each other what they have.
//!
//! All know one name of an abstract Unix socket, which leaves nothing behind. The first
//! rank to take it is the host: it hands each announcement on to all. Where the host has
//! gone before all were there, another rank takes the name. Everybody ends as soon as it
//! knows all announcements, or at its own deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;

/// How long to wait before the name is tried again.
const TICK: Duration = Duration::from_millis(20);
/// The most that a rank may say without ending its line.
const MAX_LINE: usize = 64 * 1024;

/// The ranks of one node that compare what they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerGroup {
    /// The same for all of them, and for no other group of the node.
    pub name: String,
    /// The calling rank's position, from 0.
    pub position: usize,
    /// How many ranks it has.
    pub size: usize,
}

/// What each rank has announced, by position; `None` where it has not answered.
pub type Replies = Vec<Option<String>>;

/// Tells all others of the group `announcement`, which has no line break, and learns
/// theirs, until all are known or the time is over.
///
/// # Errors
/// The system refuses sockets.
pub fn exchange(group: &PeerGroup, announcement: &str, time: Duration) -> io::Result<Replies> {
    let deadline = Instant::now() + time;
    let mut replies = vec![None; group.size];
    note(&mut replies, group.position, announcement);
    while !is_over(&replies, deadline) {
        match take_name(group)? {
            Some(listener) => host(&listener, &mut replies, deadline)?,
            None => ask(group, &mut replies, deadline)?,
        }
        if !is_over(&replies, deadline) {
            thread::sleep(TICK);
        }
    }
    Ok(replies)
}

fn is_over(replies: &Replies, deadline: Instant) -> bool {
    replies.iter().all(Option::is_some) || Instant::now() >= deadline
}

/// Collects announcements, and hands each on to all.
fn host(listener: &UnixListener, replies: &mut Replies, deadline: Instant) -> io::Result<()> {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        // An error: no more calls for now, or one that has gone already.
        while let Ok((stream, _)) = listener.accept() {
            connections.extend(Connection::new(stream));
        }
        let mut heard = Vec::new();
        for (from, connection) in connections.iter_mut().enumerate() {
            heard.extend(connection.receive().into_iter().map(|(at, text)| (from, at, text)));
        }
        for (from, position, text) in heard {
            let is_new = note(replies, position, &text);
            for (at, connection) in connections.iter_mut().enumerate() {
                // Not before it has announced: it must not be through before this host is.
                if at == from {
                    connection.send_all(replies);
                } else if is_new {
                    connection.send(position, &text);
                }
            }
        }
        connections.retain(|connection| connection.is_open);
        if is_over(replies, deadline) {
            return Ok(());
        }
        let streams = connections.iter().map(|connection| connection.stream.as_fd());
        wait([listener.as_fd()].into_iter().chain(streams), deadline)?;
    }
}

/// Announces to the host, and learns what it knows; until it has gone, if need be.
fn ask(group: &PeerGroup, replies: &mut Replies, deadline: Instant) -> io::Result<()> {
    let Some(mut connection) = reach(group)? else { return Ok(()) };
    let own = replies.get(group.position).cloned().flatten().unwrap_or_default();
    connection.send(group.position, &own);
    loop {
        for (position, text) in connection.receive() {
            if position != group.position {
                note(replies, position, &text);
            }
        }
        if !connection.is_open || is_over(replies, deadline) {
            return Ok(());
        }
        wait([connection.stream.as_fd()], deadline)?;
    }
}

/// Keeps what a rank has announced; whether that is new.
fn note(replies: &mut Replies, position: usize, text: &str) -> bool {
    match replies.get_mut(position) {
        Some(known) if known.as_deref() != Some(text) => {
            *known = Some(text.to_owned());
            true
        }
        _ => false,
    }
}

/// A connection, and what has come of a line that is not yet whole.
struct Connection {
    stream: UnixStream,
    text: Vec<u8>,
    is_open: bool,
}

impl Connection {
    /// `None` for another user's, since any user can use the name.
    fn new(stream: UnixStream) -> Option<Connection> {
        let is_ours = socket_peercred(&stream).is_ok_and(|peer| peer.uid == getuid());
        (is_ours && stream.set_nonblocking(true).is_ok()).then(|| Connection {
            stream,
            text: Vec::new(),
            is_open: true,
        })
    }

    /// One that does not take it in time is of no use.
    fn send(&mut self, position: usize, text: &str) {
        let line = format!("{position} {text}\n");
        let mut rest = line.as_bytes();
        while self.is_open && !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_open = takes_more(&self.stream);
                }
                Err(_) => self.is_open = false,
            }
        }
    }

    fn send_all(&mut self, replies: &Replies) {
        for (position, text) in replies.iter().enumerate() {
            if let Some(text) = text {
                self.send(position, text);
            }
        }
    }

    /// The announcements that have come.
    fn receive(&mut self) -> Vec<(usize, String)> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.text.extend(buffer.iter().take(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    self.is_open = false;
                    break;
                }
            }
        }
        let whole = self.text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.text.drain(..whole).collect();
        self.is_open &= self.text.len() <= MAX_LINE;
        String::from_utf8_lossy(&lines).lines().filter_map(parsed).collect()
    }
}

fn parsed(line: &str) -> Option<(usize, String)> {
    let (position, text) = line.split_once(' ')?;
    Some((position.parse().ok()?, text.to_owned()))
}

/// Waits until one of these can be read, at most until the deadline.
fn wait<'fd>(fds: impl IntoIterator<Item = BorrowedFd<'fd>>, deadline: Instant) -> io::Result<()> {
    let fds = fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let mut fds: Vec<PollFd> = fds.collect();
    let time = deadline.saturating_duration_since(Instant::now());
    match poll(&mut fds, Some(&Timespec::try_from(time).map_err(io::Error::other)?)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until a full socket takes more; whether it does.
fn takes_more(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    let time = Timespec { tv_sec: 1, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&time)), Ok(1..) | Err(Errno::INTR))
}

/// Becomes the host; `None` where somebody else is.
fn take_name(group: &PeerGroup) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&group.name)?) {
        Ok(listener) => listener.set_nonblocking(true).map(|()| Some(listener)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// A connection to the host; `None` where it has gone.
fn reach(group: &PeerGroup) -> io::Result<Option<Connection>> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&group.name)?);
    Ok(stream.ok().and_then(Connection::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, position: usize, size: usize) -> PeerGroup {
        PeerGroup { name: format!("gpubind-test-{}-{name}", std::process::id()), position, size }
    }

    /// What each of these ranks learns.
    fn exchanged(name: &str, positions: &[usize], size: usize, time: Duration) -> Vec<Replies> {
        std::thread::scope(|scope| {
            let start = |position: &usize| {
                let group = group(name, *position, size);
                let text = format!("text of {position}");
                scope.spawn(move || exchange(&group, &text, time).unwrap())
            };
            let threads: Vec<_> = positions.iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_learn_of_all() {
        for size in [1, 2, 3, 17, 128] {
            let positions: Vec<usize> = (0..size).collect();
            let expected: Replies = (0..size).map(|at| Some(format!("text of {at}"))).collect();
            for replies in exchanged("all", &positions, size, Duration::from_secs(20)) {
                assert_eq!(replies, expected);
            }
        }
    }

    #[test]
    fn long_announcements_of_many_ranks_arrive() {
        // Together they are more than a socket's buffer takes.
        std::thread::scope(|scope| {
            for position in 0..64 {
                scope.spawn(move || {
                    let text = "x".repeat(20_000 + position);
                    let group = group("long", position, 64);
                    let replies = exchange(&group, &text, Duration::from_secs(60)).unwrap();
                    let lengths = replies.iter().map(|reply| reply.as_ref().unwrap().len());
                    assert_eq!(lengths.collect::<Vec<_>>(), (20_000..20_064).collect::<Vec<_>>());
                });
            }
        });
    }

    #[test]
    fn who_is_missing_costs_the_deadline_and_nothing_else() {
        let begin = Instant::now();
        let replies = exchanged("missing", &[0, 1, 3], 4, Duration::from_millis(400));
        assert!(begin.elapsed() >= Duration::from_millis(400));
        assert!(begin.elapsed() < Duration::from_secs(5));
        for replies in replies {
            let missing: Vec<usize> = (0..4).filter(|at| replies[*at].is_none()).collect();
            assert_eq!(missing, [2]);
        }
    }

    #[test]
    fn one_exchange_after_the_other_never_mixes() {
        // A rank that is through with one exchange begins the next while others are still
        // in the first.
        std::thread::scope(|scope| {
            for position in 0..6 {
                scope.spawn(move || {
                    for round in 0..20 {
                        let group = group("rounds", position, 6);
                        let text = round.to_string();
                        let replies = exchange(&group, &text, Duration::from_secs(30)).unwrap();
                        assert_eq!(replies, vec![Some(text); 6], "{position}");
                    }
                });
            }
        });
    }

    #[test]
    fn late_ranks_and_early_ends_lose_nobody() {
        // The host ends at its deadline, before the last rank is there.
        let replies = std::thread::scope(|scope| {
            let start = |position: usize, after: u64, time: u64| {
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(after));
                    let text = format!("text of {position}");
                    let time = Duration::from_millis(time);
                    exchange(&group("late", position, 4), &text, time).unwrap()
                })
            };
            let threads =
                [start(0, 0, 400), start(1, 100, 9000), start(2, 200, 9000), start(3, 800, 2000)];
            threads.map(|thread| thread.join().unwrap())
        });
        let missing = |replies: &Replies| replies.iter().position(Option::is_none);
        assert_eq!(replies.each_ref().map(missing), [Some(3), None, None, None]);
    }

    #[test]
    fn one_that_says_nothing_holds_nobody_up() {
        let silent = group("silent", 0, 3);
        let listener = take_name(&silent).unwrap().unwrap();
        let begin = Instant::now();
        let replies = exchanged("silent", &[1, 2], 3, Duration::from_millis(400));
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(replies.iter().all(|replies| replies[0].is_none()));
        drop(listener);
        // One that calls and says nothing.
        let begin = Instant::now();
        let replies = std::thread::scope(|scope| {
            let host = scope.spawn(|| exchange(&silent, "0", Duration::from_millis(900)).unwrap());
            thread::sleep(Duration::from_millis(100));
            let caller = reach(&silent).unwrap();
            let other = exchange(&group("silent", 1, 3), "1", Duration::from_millis(300)).unwrap();
            drop(caller);
            [host.join().unwrap(), other]
        });
        assert!(begin.elapsed() < Duration::from_secs(5));
        let expected = vec![Some("0".to_owned()), Some("1".to_owned()), None];
        assert_eq!(replies, [expected.clone(), expected]);
    }
}
