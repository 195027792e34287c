/** The interface between the connection, which reads requests, and what serves one of them. */
import type { ClientConnection } from '../client-connection.ts';
import type { HeaderField } from './header-fields.ts';
import type { Pin } from './pin.ts';
import type { ResponseWriter } from './response-writer.ts';

/** What serves the current request. It gets the events of the client. */
export interface RequestHandler {
  /** False: the next part of the body is not read yet. `resumeBody` changes that. */
  readonly wantsBody: boolean;
  onBody(chunk: Buffer): void;
  onBodyEnd(trailers: readonly HeaderField[]): void;
  /** The client can take more of the response. */
  onClientDrain(): void;
  /** Ends the request without a reply: the client has left, or its body is malformed. */
  abort(): void;
}

/** What a handler needs from the connection. */
export interface RequestContext {
  readonly connection: ClientConnection;
  readonly response: ResponseWriter;
  readonly pin: Pin;
  /** `wantsBody` of the handler has become true. */
  resumeBody(): void;
  /** Stops reading for a tunnel. @returns what the client has sent after the request. */
  detach(): Buffer | undefined;
}
