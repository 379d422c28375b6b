# Runs a server and kills it when our standard input ends, that is, when the process that
# started us is gone, however it went. $1 is the server's folder, the rest is its command.
# A background job's standard input is /dev/null: hence descriptor 3.
folder=$1
shift
# A group left with a stopped server in it is hung up on, before we could kill the server.
trap '' HUP
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(
    read -r _ <&3
    rm -rf "$folder"
    kill -9 0
) &
watch=$!
exec 3<&-
wait "$server"
status=$?
kill -9 "$watch"
exit "$status"
