/** The interface between the connection, which reads requests, and a handler, which serves one request. */
import type { ClientConnection } from '../client-connection.ts';
import type { HeaderField } from './header-fields.ts';
import type { PinnedConnection } from './pinned-connection.ts';
import type { ResponseWriter } from './response-writer.ts';

/** Serves the current request and receives the client's events. */
export interface RequestHandler {
  /**
   * Whether the handler takes the next part of the body. While it is false, the connection must not read the body until
   * `resumeBody` is called.
   */
  readonly wantsBody: boolean;
  onBody(chunk: Buffer): void;
  onBodyEnd(trailers: readonly HeaderField[]): void;
  /** Called when the client can take more of the response. */
  onClientDrain(): void;
  /** Ends the request without a reply, because the client has disconnected or its body is malformed. */
  abort(): void;
}

/** The methods of the connection that a handler uses. */
export interface RequestContext {
  readonly connection: ClientConnection;
  readonly response: ResponseWriter;
  readonly pin: PinnedConnection;
  /** Call it when the handler's `wantsBody` has become true again. */
  resumeBody(): void;
  /**
   * Stops reading so that a tunnel can take the socket.
   * @returns what the client has sent after the request.
   */
  detach(): Buffer | undefined;
}
