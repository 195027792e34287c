/** `noria run`: the daemon, until a signal ends it. */
import type { Command } from 'commander';
import { createLog } from '../core/log.ts';
import { startDaemon } from '../daemon.ts';
import { configOption, readConfig } from './config-file.ts';
import { untilSignalled } from './lifecycle.ts';
import type { CommandContext } from './program.ts';
import { EXIT } from './terminal.ts';

interface RunFlags {
  readonly config?: string;
}

export function addRunCommand(program: Command, { action, terminal, logLevel }: CommandContext): void {
  program
    .command('run')
    .description('the daemon, until SIGTERM or SIGINT; open tunnels finish first')
    .addOption(configOption())
    .addHelpText('after', '\nExamples:\n  noria run\n  noria run -c /etc/noria/noria.yaml --log-level debug')
    .action(
      action(async (flags: RunFlags) => {
        const config = await readConfig(flags.config, terminal);
        const log = createLog({ ...config.log, level: logLevel() ?? config.log.level });
        const daemon = await startDaemon({ config, log });
        const { listeners, admin } = daemon.addresses;
        log.info({ listeners, admin: admin ?? 'off' }, 'noria is running');
        const signal = await untilSignalled();
        log.info({ signal }, 'noria is shutting down');
        await daemon.close();
        log.info({}, 'noria has ended');
        return EXIT.fine;
      }),
    );
}
