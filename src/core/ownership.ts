/**
 * The owner's list of what was opened: its reverse is the order of closing.
 *
 * Opening many things is a transaction: when one fails, those before it are closed and the failure goes on.
 */
export type Close = () => void | Promise<void>;

export class Ownership {
  readonly #owned: { readonly name: string; readonly close: Close }[] = [];
  #closing: Promise<void> | undefined;

  /** Adds one thing. Closing starts with the last one added. */
  own(name: string, close: Close): void {
    if (this.#closing !== undefined) throw new TypeError(`${name} was opened by an owner that is closing`);
    this.#owned.push({ name, close });
  }

  /** Awaits `opening` and owns what it gives. */
  async open<T extends { close(): void | Promise<void> }>(name: string, opening: T | Promise<T>): Promise<T> {
    const thing = await opening;
    this.own(name, () => thing.close());
    return thing;
  }

  /**
   * Closes all, the last first, each after the one before has closed. Calling it again joins the first call.
   *
   * @throws AggregateError naming each thing that failed to close; the others are closed all the same.
   */
  close(): Promise<void> {
    this.#closing ??= this.#closeAll();
    return this.#closing;
  }

  async #closeAll(): Promise<void> {
    const errors: Error[] = [];
    for (const { name, close } of this.#owned.reverse()) {
      try {
        await close();
      } catch (cause) {
        errors.push(new Error(`${name} did not close: ${String(cause)}`, { cause }));
      }
    }
    if (errors.length > 0) throw new AggregateError(errors, errors.map((error) => error.message).join('; '));
  }
}

/**
 * Runs `build` with a new owner: returns what it built and the owner, or closes whatever was opened and throws.
 *
 * @throws what `build` threw.
 */
export async function openAll<T>(
  build: (owner: Ownership) => Promise<T>,
): Promise<{ built: T; owner: Ownership }> {
  const owner = new Ownership();
  try {
    return { built: await build(owner), owner };
  } catch (error) {
    await owner.close().catch(() => {}); // ignored: the reason that opening failed is the one to tell
    throw error;
  }
}
