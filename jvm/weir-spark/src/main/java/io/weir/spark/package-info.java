/**
 * Weir inside Apache Spark: a plugin ({@link io.weir.spark.WeirPlugin}) that has shuffle blocks fetched from Weir's agents, as
 * coflows. Whatever does not work is fetched as Spark itself does.
 *
 * <p>Nothing here names a type of Scala's collections in a call: they differ between Scala 2.12 and 2.13, and one jar runs on both.
 */
package io.weir.spark;
