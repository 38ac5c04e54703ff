#!/bin/sh
# Fetches the jars of a Spark (about 280 MB) into target/tools/spark/VERSION/jars, and prints that folder's parent, which is a
# SPARK_HOME to a worker. Nothing is installed.
#
#   install-spark.sh           the newest version that Weir was tried with
#   install-spark.sh VERSION   another one, such as 3.5.9
#   install-spark.sh VERSION mllib   with MLlib, in a folder of its own
set -eu
version="${1:-4.2.0}"
case "$version" in
    3.*) scala=2.12 ;;
    *) scala=2.13 ;;
esac
here=$(cd "$(dirname "$0")/.." && pwd)
with="${2:-}"
case "$with" in
    '' | mllib) ;;
    *)
        echo "install-spark.sh: there is no \`$with'; say mllib, or nothing" >&2
        exit 2
        ;;
esac
home="${CARGO_TARGET_DIR:-$here/target}/tools/spark/$version${with:+-$with}"
case "$home" in
    /*) ;;
    *) home="$PWD/$home" ;;
esac
if [ ! -e "$home/jars/complete" ]; then
    "$here/scripts/install-deps.sh" jvm >&2
    # Begun anew: what a fetch left that was broken off is not all of it.
    rm -rf "$home"
    mvn -q -B -ntp -f "$here/jvm/spark/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        ${with:+-P$with} "-Dspark.version=$version" "-Dspark.scala=$scala" -DincludeScope=runtime "-DoutputDirectory=$home/jars" >&2
    : >"$home/jars/complete"
fi
echo "$home"
