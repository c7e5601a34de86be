//! Listening sockets with room for a burst of new connections.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted; the system may set a lower limit (`net.core.somaxconn`). A connection beyond it
/// is not refused: its client repeats the first packet after a second.
const BACKLOG: u32 = 4_096;

/// Listens at the address. Port 0 picks a free port.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server does not have to wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// A connection that its client has closed still waits to be accepted, so the test needs few open files.
    #[tokio::test]
    async fn thousands_of_connections_wait_to_be_accepted() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let most = most.trim().parse().map_or(4_096, |most: u32| most.min(4_096));
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        for number in 0..most {
            let connected = TcpStream::connect_timeout(&address, Duration::from_millis(900));
            assert!(connected.is_ok(), "connection {number} of {most}: {connected:?}");
        }
    }
}
