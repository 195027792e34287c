/**
 * Protocols of members. `https` is an HTTP proxy that noria reaches over TLS. Lists of free proxies often use the
 * label https for an `http` proxy that supports CONNECT.
 */
export const MEMBER_PROTOCOLS = ['http', 'https', 'socks4', 'socks5'] as const;

export type MemberProtocol = (typeof MEMBER_PROTOCOLS)[number];

export const LISTENER_PROTOCOLS = ['http', 'socks5', 'socks4'] as const;

export type ListenerProtocol = (typeof LISTENER_PROTOCOLS)[number];
