/* Answers one command of vcagent's controller as the agent on a host does; sshd's ForceCommand.
 *
 *     fleet_scale_host FOLDER
 *
 * FOLDER holds the answers that fleet_scale.py wrote. A Python for each command would take 100 times the
 * processor time, and 256 hosts on one machine would wait for each other, not for the controller.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *folder;
static char *line;
static size_t room;

static FILE *answer(const char *name)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static void say(const char *name)
{
    char piece[65536];
    size_t count;
    FILE *file = answer(name);

    while ((count = fread(piece, 1, sizeof piece, file)))
        fwrite(piece, 1, count, stdout);
    fclose(file);
    fflush(stdout);
}

static void read_line(void)
{
    if (getline(&line, &room, stdin) < 0)
        exit(1);
}

static void skip(long left)
{
    while (left > 0 && getchar() != EOF)
        left--;
}

int main(int count, char **words)
{
    const char *command = getenv("SSH_ORIGINAL_COMMAND");

    if (count != 2 || !command)
        return 2;
    folder = words[1];
    puts("vcagent-begins-here");
    fflush(stdout);
    if (strstr(command, "fleet-host watch ")) { /* where the run stands, once a second */
        FILE *file = answer("watch");
        for (int number = 0; getline(&line, &room, file) > 0; number++) {
            if (number)
                sleep(1);
            fputs(line, stdout);
            fflush(stdout);
        }
    } else if (strstr(command, "fleet-host send ")) { /* the list, then the files that are asked for */
        say("listed");
        read_line();
        char *wanted = strdup(line);
        FILE *file = answer("all_of_them");
        if (getline(&line, &room, file) < 0 || strcmp(line, wanted)) {
            fprintf(stderr, "not all files were asked for: %s", wanted);
            return 1;
        }
        say("files");
    } else { /* the doorstep: the length of its program, the program, the order */
        read_line();
        skip(atol(line));
        read_line();
        if (strstr(line, "\"probe\"")) {
            char *end = NULL;
            size_t size = 0;
            FILE *file = answer("probe");
            if (getline(&end, &size, file) < 0)
                return 1;
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            printf("{\"clock_s\": %ld.%03ld, %s", (long)now.tv_sec, now.tv_nsec / 1000000, end + 1);
        } else {
            puts("{\"missing\": false}");
            fflush(stdout);
            while (getchar() != EOF)
                ;
            say("begun");
        }
    }
    return fflush(stdout) ? 1 : 0;
}
