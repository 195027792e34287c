/** Protocols of members. `https` is an HTTP proxy over TLS; a free proxy labelled https is plain `http`. */
export const MEMBER_PROTOCOLS = ['http', 'https', 'socks4', 'socks5'] as const;

export type MemberProtocol = (typeof MEMBER_PROTOCOLS)[number];

/** The protocols that clients may use. */
export const LISTENER_PROTOCOLS = ['http', 'socks5', 'socks4'] as const;

export type ListenerProtocol = (typeof LISTENER_PROTOCOLS)[number];
