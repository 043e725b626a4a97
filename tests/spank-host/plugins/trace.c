/* Says when each hook runs and what it finds there. */
#define PLUGIN_NAME "trace"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "plugin.h"

enum { S_JOB_ID = 2, S_JOB_LOCAL_TASK_COUNT = 6, S_TASK_ID = 11, S_TASK_GLOBAL_ID = 12,
       S_TASK_EXIT_STATUS = 13, S_TASK_PID = 14 };

struct option {
	const char *name, *arginfo, *usage;
	int has_arg, val;
	int (*callback)(int, const char *, int);
};

extern int spank_context(void);
extern int spank_get_item(void *, int, ...);
extern int spank_getenv(void *, const char *, char *, int);
extern int spank_setenv(void *, const char *, const char *, int);
extern int spank_option_register(void *, struct option *);
extern void slurm_spank_log(const char *, ...);

static int called(int val, const char *value, int remote)
{
	slurm_spank_log("option %d=%s remote=%d", val, value, remote);
	return 0;
}

static int say(const char *hook, void *spank)
{
	int task = -1, status = 0;
	uint32_t tasks = 0, rank = 0;
	pid_t pid = 0;
	char text[200], value[5] = "";
	int length = snprintf(text, sizeof text, "%s context=%d", hook, spank_context());

	if (!spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks))
		length += snprintf(text + length, sizeof text - length, " tasks=%u", tasks);
	if (!spank_get_item(spank, S_TASK_ID, &task) &&
	    !spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) &&
	    !spank_get_item(spank, S_TASK_PID, &pid) &&
	    !spank_get_item(spank, S_TASK_EXIT_STATUS, &status))
		length += snprintf(text + length, sizeof text - length,
				   " task=%d rank=%u own=%d status=%d", task, rank,
				   pid == getpid(), status >> 8);
	if (!spank_getenv(spank, "SLURM_LOCALID", value, sizeof value))
		length += snprintf(text + length, sizeof text - length, " localid=%s", value);
	slurm_spank_log("%s", text);
	return 0;
}

#define HOOK(name)                                                             \
	int slurm_spank_##name(void *spank, int argc, char **argv)             \
	{                                                                      \
		(void)argc, (void)argv;                                        \
		return say(#name, spank);                                      \
	}

int slurm_spank_init(void *spank, int argc, char **argv)
{
	static struct option option = { "trace", "WORD", "a word", 1, 7, called };

	slurm_spank_log("arguments %d %s", argc, argc ? argv[0] : "-");
	spank_option_register(spank, &option);
	return say("init", spank);
}

int slurm_spank_task_init(void *spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	spank_setenv(spank, "TRACE", "was here", 1);
	return say("task_init", spank);
}

HOOK(slurmd_exit)
HOOK(job_prolog)
HOOK(init_post_opt)
HOOK(local_user_init)
HOOK(user_init)
HOOK(task_init_privileged)
HOOK(task_post_fork)
HOOK(job_epilog)
HOOK(exit)

/* -1 where the step's environment says so. */
int slurm_spank_task_exit(void *spank, int argc, char **argv)
{
	char value[5];

	(void)argc, (void)argv;
	say("task_exit", spank);
	return spank_getenv(spank, "FAIL", value, sizeof value) ? 0 : -1;
}
