/* What stable Rust cannot define: functions with any number of arguments, and
 * valgrind's requests. All else of the stand-in is in Rust. The interface is the one
 * of slurm/spank.h, which is the same in Slurm 22.05 to 26.05. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#if defined(__has_include) && __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HAVE_CALLGRIND 1
#endif

/* Items that take something other than one pointer (enum spank_item). */
enum {
	S_JOB_ARGV = 9,
	S_JOB_PID_TO_GLOBAL_ID = 15,
	S_JOB_PID_TO_LOCAL_ID = 16,
	S_JOB_LOCAL_TO_GLOBAL_ID = 17,
	S_JOB_GLOBAL_TO_LOCAL_ID = 18,
	S_JOB_SUPPLEMENTARY_GIDS = 19,
};

int spank_host_item(void *spank, int item, uint32_t key, void *first, void *second);
void spank_host_log(int level, const char *text);

int spank_get_item(void *spank, int item, ...)
{
	uint32_t key = 0;
	void *first, *second = NULL;
	va_list arguments;

	va_start(arguments, item);
	switch (item) {
	case S_JOB_PID_TO_GLOBAL_ID:
	case S_JOB_PID_TO_LOCAL_ID:
		key = (uint32_t)va_arg(arguments, pid_t);
		first = va_arg(arguments, void *);
		break;
	case S_JOB_LOCAL_TO_GLOBAL_ID:
	case S_JOB_GLOBAL_TO_LOCAL_ID:
		key = va_arg(arguments, uint32_t);
		first = va_arg(arguments, void *);
		break;
	case S_JOB_ARGV:
	case S_JOB_SUPPLEMENTARY_GIDS:
		first = va_arg(arguments, void *);
		second = va_arg(arguments, void *);
		break;
	default:
		first = va_arg(arguments, void *);
	}
	va_end(arguments);
	return spank_host_item(spank, item, key, first, second);
}

#define LOGGER(name, level)                                                    \
	void name(const char *format, ...)                                     \
	{                                                                      \
		char *text = NULL;                                             \
		va_list arguments;                                             \
		int length;                                                    \
		va_start(arguments, format);                                   \
		length = vasprintf(&text, format, arguments);                  \
		va_end(arguments);                                             \
		if (length >= 0)                                               \
			spank_host_log(level, text);                           \
		free(text);                                                    \
	}

/* The numbers are those of src/log.rs. */
LOGGER(slurm_spank_log, 0)
LOGGER(slurm_error, 1)
LOGGER(slurm_info, 2)
LOGGER(slurm_verbose, 3)
LOGGER(slurm_debug, 4)
LOGGER(slurm_debug2, 5)
LOGGER(slurm_debug3, 6)

/* Whether the two functions below do anything. */
int spank_host_has_callgrind(void)
{
#ifdef HAVE_CALLGRIND
	return 1;
#else
	return 0;
#endif
}

/* Begins to count instructions, from zero. */
void spank_host_begin_count(void)
{
#ifdef HAVE_CALLGRIND
	CALLGRIND_ZERO_STATS;
	CALLGRIND_TOGGLE_COLLECT;
#endif
}

/* Ends that, and writes the count under this name. */
void spank_host_end_count(const char *name)
{
#ifdef HAVE_CALLGRIND
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT(name);
#else
	(void)name;
#endif
}
