/* Does to a step what pyxis 0.24 does at the points that matter to another SPANK plugin:
 * the option --container-image; in task_init, not before, the image's environment over
 * that of the task, RANK and LOCAL_RANK in images with PYTORCH_VERSION, and only then the
 * container's root. (NVIDIA/pyxis, pyxis_slurmstepd.c: slurm_spank_task_init,
 * spank_import_container_env, pytorch_setup; NVIDIA/enroot, 50-slurm-pytorch.sh for
 * WORLD_SIZE.)
 *
 * An image is a folder. Its environment is in etc/environment; IMAGE.mounts, beside it,
 * has a line `SOURCE TARGET` for each thing that is brought in, as enroot's mounts.d has.
 */
#define _GNU_SOURCE
#define PLUGIN_NAME "pyxis"
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>
#include "../../spank-host/plugins/plugin.h"

struct option {
	const char *name, *arginfo, *usage;
	int has_arg, val;
	int (*callback)(int, const char *, int);
};

extern int spank_getenv(void *, const char *, char *, int);
extern int spank_setenv(void *, const char *, const char *, int);
extern int spank_option_register(void *, struct option *);
extern void slurm_error(const char *, ...);

static char image[4000];

static int take(int val, const char *value, int remote)
{
	(void)val, (void)remote;
	snprintf(image, sizeof image, "%s", value ? value : "");
	return 0;
}

int slurm_spank_init(void *spank, int argc, char **argv)
{
	static struct option option = { "container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
					"a folder", 1, 0, take };

	(void)argc, (void)argv;
	return spank_option_register(spank, &option);
}

/* Options come first (args.c, pyxis_args_check_environment_variables). */
int slurm_spank_init_post_opt(void *spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	if (!*image && spank_getenv(spank, "PYXIS_CONTAINER_IMAGE", image, sizeof image))
		*image = 0;
	return 0;
}

/* Calls with each line of a file, without its end; nothing where there is no file. */
static int each_line(const char *file, int (*with)(void *, char *), void *spank)
{
	char line[8000];
	FILE *lines = fopen(file, "r");
	int rc = 0;

	while (lines && !rc && fgets(line, sizeof line, lines)) {
		line[strcspn(line, "\n")] = 0;
		rc = with(spank, line);
	}
	if (lines)
		fclose(lines);
	return rc;
}

static int set_line(void *spank, char *line)
{
	char *value = strchr(line, '=');

	if (!value)
		return 0;
	*value++ = 0;
	return spank_setenv(spank, line, value, 1);
}

static int copy(void *spank, const char *from, const char *to, int overwrite)
{
	char value[256];

	if (spank_getenv(spank, from, value, sizeof value))
		return -1;
	spank_setenv(spank, to, value, overwrite);
	return 0;
}

static int set_up_pytorch(void *spank)
{
	char value[256];

	if (spank_getenv(spank, "PYTORCH_VERSION", value, sizeof value))
		return 0;
	return copy(spank, "SLURM_NTASKS", "WORLD_SIZE", 0) ||
	       copy(spank, "SLURM_PROCID", "RANK", 1) ||
	       copy(spank, "SLURM_LOCALID", "LOCAL_RANK", 1);
}

static int bring(void *spank, char *line)
{
	char target[8200], *inside = strchr(line, ' ');

	(void)spank;
	if (!inside)
		return 0;
	*inside++ = 0;
	snprintf(target, sizeof target, "%s%s", image, inside);
	if (!mount(line, target, NULL, MS_BIND | MS_REC, NULL))
		return 0;
	slurm_error("pyxis: cannot mount %s on %s: %m", line, target);
	return -1;
}

static int enter(void *spank)
{
	char mounts[4100];

	snprintf(mounts, sizeof mounts, "%s.mounts", image);
	if (unshare(CLONE_NEWNS))
		return -1;
	/* Where this is not the root of a mount, it is in a namespace that is private already. */
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return each_line(mounts, bring, spank) || chroot(image) || chdir("/");
}

int slurm_spank_task_init(void *spank, int argc, char **argv)
{
	char environment[4100];

	(void)argc, (void)argv;
	if (!*image)
		return 0;
	snprintf(environment, sizeof environment, "%s/etc/environment", image);
	if (each_line(environment, set_line, spank) || set_up_pytorch(spank) || enter(spank)) {
		slurm_error("pyxis: cannot enter %s: %m", image);
		return -1;
	}
	return 0;
}
