package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class ReadmeTest {
    @Test
    void the_example_of_the_readme_is_the_code_that_is_compiled_and_run_here() throws Exception {
        String code = Files.readString(Path.of("src/test/java/io/weir/client/ReadmeExample.java"));
        String example = code.substring(code.indexOf("// example\n") + 11, code.indexOf("        // end")).replaceAll("(?m)^ {8}", "");
        String readme = Files.readString(Path.of("../README.md"));
        assertTrue(readme.contains(example), "jvm/README.md has another example than:\n" + example);
    }
}
