/** Owns the resources that a part of noria opens. Closes them in reverse order, also if opening one of them fails. */
export class Ownership {
  readonly #owned: { readonly name: string; readonly close: () => void | Promise<void> }[] = [];
  #closing: Promise<void> | undefined;

  own(name: string, close: () => void | Promise<void>): void {
    if (this.#closing !== undefined) throw new TypeError(`${name} was opened while its owner was closing`);
    this.#owned.push({ name, close });
  }

  async open<T extends { close(): void | Promise<void> }>(name: string, opening: T | Promise<T>): Promise<T> {
    const thing = await opening;
    this.own(name, () => thing.close());
    return thing;
  }

  /** @throws AggregateError that names each resource that failed to close; the other resources are closed. */
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

/** Runs `build` with a new owner. If `build` throws, closes everything that `build` opened, and rethrows the error. */
export async function openAll<T>(
  build: (owner: Ownership) => Promise<T>,
): Promise<{ built: T; owner: Ownership }> {
  const owner = new Ownership();
  try {
    return { built: await build(owner), owner };
  } catch (error) {
    await owner.close().catch(() => {}); // ignored: the caller needs the error of `build`
    throw error;
  }
}
